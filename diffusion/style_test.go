package diffusion

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/lorafuse/lorafuse/diffusion/dit"
	"github.com/lorafuse/lorafuse/diffusion/flow"
	"github.com/lorafuse/lorafuse/model"
)

func TestStyles(t *testing.T) {
	of := func(name string, family model.Family, distilled bool) Style {
		return StyleOf(&model.Config{Architecture: name, Family: family}, distilled)
	}
	dev := of("FluxTransformer2DModel", &dit.Flux{Guidance: true}, false)
	assert.Equal(t, 28, dev.Steps)
	assert.InDelta(t, 3.5, dev.Told, 0)
	assert.Nil(t, dev.Negative)
	assert.Equal(t, 4, of("FluxTransformer2DModel", &dit.Flux{}, false).Steps)

	qwen := of("QwenImageTransformer2DModel", nil, false)
	assert.Equal(t, " ", *qwen.Negative)
	assert.Equal(t, flow.Rescale, qwen.Guidance)

	distilled := of("Flux2Transformer2DModel", nil, true)
	assert.Nil(t, distilled.Negative)
	assert.Equal(t, 4, distilled.Steps)

	// FLUX.2 is shifted by its own µ, Kandinsky goes out from the table of training.
	s, err := flow.Parse([]byte(`{"use_dynamic_shifting": true}`))
	assert.NoError(t, err)
	assert.Equal(t, s.Sample(8, flow.Flux2Mu(1024, 8)), distilled.levels(s, 1024, 8))
	assert.Equal(t, s.Sample(8, s.Mu(1024)), qwen.levels(s, 1024, 8))
	assert.Equal(t, s.SampleTable(8, s.Mu(1024)), of("Kandinsky5Transformer3DModel", nil, false).levels(s, 1024, 8))
}
