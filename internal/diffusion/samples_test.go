package diffusion_test

import (
	"context"
	"image"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/backend/null"
	"github.com/lorafuse/lorafuse/dev/testdevice"
	"github.com/lorafuse/lorafuse/internal/diffusion"
	"github.com/lorafuse/lorafuse/internal/host"
	"github.com/lorafuse/lorafuse/internal/lora/dialects"
	"github.com/lorafuse/lorafuse/lora"
)

// fluxSamples has FLUX on a device, and its autoencoder ready, with nothing to draw yet.
func fluxSamples(t *testing.T, dev backend.Device) (diffusion.Samples, *host.Host) {
	pipeline := pipelineOf(t, map[string]string{diffusion.Transformer: "flux", diffusion.VAE: "vae-flux"})
	m, f, err := pipeline.OpenTransformer()
	require.NoError(t, err)
	t.Cleanup(func() { m.Close() })
	r := host.Open(dev, m)
	t.Cleanup(r.Close)
	schedule, err := pipeline.Schedule()
	require.NoError(t, err)
	painter, err := diffusion.NewPainter(r, schedule, pipeline.Style(m.Config))
	require.NoError(t, err)
	canvas, err := pipeline.Canvas(f.Space())
	require.NoError(t, err)
	return diffusion.Samples{Painter: painter, Canvas: canvas}, r
}

func TestSamples(t *testing.T) {
	s, r := fluxSamples(t, testdevice.Open(t, backend.Options{}))
	m := r.Model()
	state, err := dialects.LoadState(filepath.Join(testdata, "flux/train/final.safetensors"), m, lora.ModelOf("", m.Modules()), lora.CheckOptions{})
	require.NoError(t, err)
	slot, err := r.NewSlot(state)
	require.NoError(t, err)
	defer slot.Free()
	g := readTensors(t, "sampling-flux")
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

	need, err := s.Need(slot)
	require.NoError(t, err)
	assert.Positive(t, need)

	s.Drawings[0].Steps = -1
	_, err = s.Need(slot)
	require.ErrorIs(t, err, diffusion.ErrDrawing)
	_, err = s.Draw(context.Background(), slot)
	assert.ErrorIs(t, err, diffusion.ErrDrawing)
}

// TestSamplesNeed: what samples are said to take is what they take.
func TestSamplesNeed(t *testing.T) {
	for _, tile := range []int{0, 16} {
		g := readTensors(t, "sampling-flux")
		for _, side := range [][]int{{16, 16, 24}, {24, 16}, {8}} {
			dev := &null.Device{}
			s, r := fluxSamples(t, dev)
			s.VAE.Tile = tile
			slot, err := r.NewSlot(nil)
			require.NoError(t, err)
			for _, n := range side {
				s.Drawings = append(s.Drawings, diffusion.Drawing{Prompt: g.prompt("", 0), Width: n, Height: n, Steps: 1})
			}
			need, err := s.Need(slot)
			require.NoError(t, err)
			_, err = s.Draw(t.Context(), slot) // weights are there from now on
			require.NoError(t, err)
			before, peak := dev.Held()
			require.LessOrEqual(t, peak-before, need, side)
			require.Greater(t, peak-before, need*9/10, side)
			dev.Memory = before + need
			_, err = s.Draw(t.Context(), slot)
			require.NoError(t, err)
		}
	}
}
