package dit_test

import (
	"fmt"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/internal/diffusion/dit"
	"github.com/lorafuse/lorafuse/safetensors"
)

// readZImage reads the samples of a case of Z-Image, whose texts have lengths of their own.
func readZImage(t testing.TB, name string) golden {
	f, err := safetensors.Open(filepath.Join(testdata, name, "golden.safetensors"))
	require.NoError(t, err)
	t.Cleanup(func() { f.Close() })
	times, _ := floats(t, f, "timestep")
	g := golden{name: name, tensors: f}
	for i, at := range times {
		latents, shape := floats(t, f, fmt.Sprintf("latents.%d", i))
		noise, _ := floats(t, f, fmt.Sprintf("noise.%d", i))
		text, textShape := floats(t, f, fmt.Sprintf("cap_feats.%d", i))
		s := noised(at, latents, noise)
		s.Latent.Channels, s.Latent.Frames, s.Latent.Height, s.Latent.Width = shape[0], 1, shape[len(shape)-2], shape[len(shape)-1]
		if len(shape) == 4 {
			s.Latent.Frames = shape[1]
		}
		s.Prompt = dit.Prompt{Features: textShape[1], Values: text}
		g.samples = append(g.samples, s)
	}
	return g
}

// noised is a sample on its way: the latent's size is not set.
func noised(t float32, latent, noise []float32) dit.Sample {
	s, sigma := dit.Sample{Timestep: t, Weight: 1}, t/1000
	s.Latent.Values, s.Target = make([]float32, len(latent)), make([]float32, len(latent))
	for i, x := range latent {
		s.Latent.Values[i] = (1-sigma)*x + sigma*noise[i]
		s.Target[i] = noise[i] - x
	}
	return s
}
