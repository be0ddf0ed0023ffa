package diffusion_test

import (
	"context"
	"image"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/diffusion"
	"github.com/lorafuse/lorafuse/engine"
	"github.com/lorafuse/lorafuse/internal/dev/testdevice"
	"github.com/lorafuse/lorafuse/lora"
	"github.com/lorafuse/lorafuse/lora/dialects"
)

func TestSamples(t *testing.T) {
	pipeline := pipelineOf(t, map[string]string{diffusion.Transformer: "flux", diffusion.VAE: "vae-flux"})
	m, f, err := pipeline.OpenTransformer()
	require.NoError(t, err)
	defer m.Close()
	r := engine.New(testdevice.Open(t, backend.Options{}), m)
	defer r.Close()
	state, err := dialects.LoadState(filepath.Join(testdata, "flux/train/final.safetensors"), m, lora.ModelOf("", m.Modules()), lora.CheckOptions{})
	require.NoError(t, err)
	slot, err := r.NewSlot(state)
	require.NoError(t, err)
	defer slot.Free()
	schedule, err := pipeline.Schedule()
	require.NoError(t, err)
	painter, err := diffusion.NewPainter(r, schedule, pipeline.Style(m.Config))
	require.NoError(t, err)
	canvas, err := pipeline.Canvas(f.Space())
	require.NoError(t, err)

	g := readTensors(t, "sampling-flux")
	s := diffusion.Samples{Painter: painter, Canvas: canvas}
	for i := range 2 {
		s.Drawings = append(s.Drawings, diffusion.Drawing{Prompt: g.prompt("", i), Width: 8, Height: 8, Steps: 2, Seed: 5})
	}
	grid, err := s.Draw(context.Background(), slot)
	require.NoError(t, err)
	assert.Equal(t, image.Rect(0, 0, 2*16+4, 2*16+4), grid.Bounds())
	again, err := s.Draw(context.Background(), slot)
	require.NoError(t, err)
	assert.Equal(t, grid, again)
	assert.NotEqual(t, grid.At(3, 3), grid.At(3+20, 3), "the adapter draws something else")

	s.Drawings[0].Steps = -1
	_, err = s.Draw(context.Background(), slot)
	assert.ErrorIs(t, err, diffusion.ErrDrawing)
}
