package dit_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/internal/diffusion/dit"
	"github.com/lorafuse/lorafuse/safetensors"
)

// readKandinsky reads the samples of a case of Kandinsky 5, whose latents are [samples,
// frames, height, width, channels].
func readKandinsky(t testing.TB, name string) golden {
	f, err := safetensors.Open(filepath.Join(testdata, name, "golden.safetensors"))
	require.NoError(t, err)
	t.Cleanup(func() { f.Close() })
	raw, err := os.ReadFile(filepath.Join(testdata, name, "inputs.json"))
	require.NoError(t, err)
	var inputs struct {
		Stretch [3]float32 `json:"scale_factor"`
	}
	require.NoError(t, json.Unmarshal(raw, &inputs))
	g := golden{name: name, tensors: f}
	times, _ := floats(t, f, "timestep")
	latents, shape := floats(t, f, "latents")
	noise, _ := floats(t, f, "noise")
	text, textShape := floats(t, f, "encoder_hidden_states")
	pooled, _ := floats(t, f, "pooled_projections")
	n, places := shape[0], shape[1]*shape[2]*shape[3]
	for i, at := range times {
		s := noised(at, turned(part(latents, n, i), places), turned(part(noise, n, i), places))
		s.Latent.Channels, s.Latent.Frames, s.Latent.Height, s.Latent.Width = shape[4], shape[1], shape[2], shape[3]
		s.Prompt = dit.Prompt{Features: textShape[2], Values: part(text, n, i), Pooled: part(pooled, n, i)}
		s.Stretch = inputs.Stretch
		if f.Has("control") {
			x, shape := floats(t, f, "control")
			c := s.Latent
			c.Channels, c.Values = shape[4], turned(part(x, n, i), places)
			s.Controls = []dit.Latent{c}
		}
		g.samples = append(g.samples, s)
	}
	return g
}
