package dit_test

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/diffusion/dit"
	"github.com/lorafuse/lorafuse/safetensors"
)

// A picture of layers, with weights in bfloat16: scripts/dit_layers.py.
func TestLayers(t *testing.T) {
	f, err := safetensors.Open(filepath.Join(testdata, "qwenimage-layered", "golden.safetensors"))
	require.NoError(t, err)
	defer f.Close()
	latent := func(name string, i int) dit.Latent {
		x, shape := floats(t, f, name)
		return dit.Latent{Channels: shape[1], Frames: shape[2], Height: shape[3], Width: shape[4], Values: part(x, shape[0], i)}
	}
	text, shape := floats(t, f, "text")
	times, _ := floats(t, f, "timestep")
	v, err := f.Lookup("mask")
	require.NoError(t, err)
	mask, err := safetensors.As[int64](v)
	require.NoError(t, err)
	samples := make([]dit.Sample, shape[0])
	for i := range samples {
		s := dit.Sample{Latent: latent("latents", i), Controls: []dit.Latent{latent("control", i)}, Timestep: times[i]}
		s.Prompt = dit.Prompt{Features: shape[2], Values: part(text, shape[0], i)}
		for _, m := range part(mask, shape[0], i) {
			s.Prompt.Mask = append(s.Prompt.Mask, m != 0)
		}
		samples[i] = s
	}
	m, _ := open(t, "qwenimage-layered")
	want, _ := floats(t, f, "output")
	requireNear(t, want, run(t, m, nil, samples), 1e-4, 1e-5)
}
