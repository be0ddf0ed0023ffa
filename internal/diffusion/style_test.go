package diffusion

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/internal/diffusion/dit"
	"github.com/lorafuse/lorafuse/internal/diffusion/flow"
	"github.com/lorafuse/lorafuse/internal/model"
	"github.com/lorafuse/lorafuse/safetensors"
)

func TestStyles(t *testing.T) {
	of := func(name string, family model.Family, distilled bool) Style {
		return (&Pipeline{Distilled: distilled}).Style(&model.Config{Architecture: name, Family: family})
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
	assert.False(t, distilled.Guided(Drawing{}))
	assert.False(t, of("ZImageTransformer2DModel", nil, true).Guided(Drawing{}))

	// What is not guided unless it is asked for.
	some := 2.0
	for _, name := range []string{"FluxTransformer2DModel", "QwenImage21Transformer2DModel"} {
		assert.False(t, of(name, &dit.Flux{}, false).Guided(Drawing{}))
		assert.True(t, of(name, &dit.Flux{}, false).Guided(Drawing{Scale: &some}))
	}

	// FLUX.2 is shifted by its own µ, Kandinsky goes out from the table of training.
	s, err := flow.Parse([]byte(`{"use_dynamic_shifting": true}`))
	assert.NoError(t, err)
	assert.Equal(t, s.Sample(8, flux2Mu(1024, 8)), distilled.levels(s, 1024, 8))
	assert.Equal(t, s.Sample(8, s.Mu(1024)), qwen.levels(s, 1024, 8))
	assert.Equal(t, s.SampleTable(8, s.Mu(1024)), of("Kandinsky5Transformer3DModel", nil, false).levels(s, 1024, 8))
}

// The shift of FLUX.2 is that of diffusers.
func TestFlux2Mu(t *testing.T) {
	raw, err := os.ReadFile("../../testdata/dit/schedules/schedules.json")
	require.NoError(t, err)
	var golden struct {
		Cases []struct {
			Tokens int `json:"image_seq_len"`
			Steps  int
			Mu     float64
		} `json:"flux2_mu"`
	}
	require.NoError(t, json.Unmarshal(raw, &golden))
	require.NotEmpty(t, golden.Cases)
	for _, c := range golden.Cases {
		assert.InDelta(t, c.Mu, flux2Mu(c.Tokens, c.Steps), 1e-14)
	}
}

// Timesteps are exactly those that the pipelines of diffusers tell their transformers.
func TestTimestepsOfPipelines(t *testing.T) {
	raw, err := os.ReadFile("../../testdata/dit/sampling/cases.json")
	require.NoError(t, err)
	var cases map[string]struct {
		Height, Width, Steps int
		Transformer          string
		Scheduler            json.RawMessage
		Sigmas               []float64
	}
	require.NoError(t, json.Unmarshal(raw, &cases))
	f, err := safetensors.Open("../../testdata/dit/sampling/golden.safetensors")
	require.NoError(t, err)
	defer f.Close()
	for name, c := range cases {
		config, err := model.ReadConfig(filepath.Join("../../testdata/dit", c.Transformer, "transformer"))
		require.NoError(t, err)
		schedule, err := flow.Parse(c.Scheduler)
		require.NoError(t, err)
		transformer := config.Family.(dit.Transformer)
		x := dit.Latent{Channels: transformer.Space().Channels, Frames: 1, Height: c.Height, Width: c.Width}
		tokens := transformer.Bounds(1, dit.Sample{Latent: x})[dit.PredictedTokens]
		l := (&Pipeline{Sigmas: c.Sigmas}).Style(config).levels(schedule, tokens, c.Steps)
		for i, got := range l.Timesteps {
			v, err := f.Lookup(fmt.Sprintf("%s.timestep.%d", name, i))
			require.NoError(t, err)
			want, err := safetensors.As[float32](v)
			require.NoError(t, err)
			assert.InDelta(t, want[0], got, 0, "%s, step %d", name, i)
		}
	}
}

// Pipelines may have levels of their own, which count unless there are to be more steps.
func TestStyleWithSigmas(t *testing.T) {
	s, err := flow.Parse([]byte(`{"shift": 3}`))
	assert.NoError(t, err)
	own := (&Pipeline{Sigmas: []float64{1, 0.9, 0.2}}).Style(&model.Config{Architecture: "QwenImage21Transformer2DModel"})
	assert.Equal(t, 3, own.Steps)
	assert.Equal(t, s.SampleFrom([]float64{1, 0.9, 0.2}, 0), own.levels(s, 64, 3))
	assert.Equal(t, s.Sample(4, 0), own.levels(s, 64, 4))
}
