package dit_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/internal/diffusion/dit"
	"github.com/lorafuse/lorafuse/safetensors"
)

// readQwenImage21 reads the samples of a case of Qwen-Image 2.1, whose latents are tokens
// [samples, height·width, channels].
func readQwenImage21(t testing.TB, name string) golden {
	f, err := safetensors.Open(filepath.Join(testdata, name, "golden.safetensors"))
	require.NoError(t, err)
	t.Cleanup(func() { f.Close() })
	g := golden{name: name, tensors: f}
	times, _ := floats(t, f, "timestep")
	latents, shape := floats(t, f, "latents")
	noise, _ := floats(t, f, "noise")
	text, textShape := floats(t, f, "encoder_hidden_states")
	mask := int64s(t, f, "encoder_hidden_states_mask")
	raw, err := os.ReadFile(filepath.Join(testdata, name, "inputs.json"))
	require.NoError(t, err)
	var inputs struct {
		Pictures [][][3]int `json:"img_shapes"`
		Controls [][3]int
	}
	require.NoError(t, json.Unmarshal(raw, &inputs))
	size := inputs.Pictures[0][0]
	for i, at := range times {
		s := noised(at, turned(part(latents, shape[0], i), shape[1]), turned(part(noise, shape[0], i), shape[1]))
		s.Latent = latent([]int{1, shape[2], size[1], size[2]}, s.Latent.Values)
		s.Prompt = dit.Prompt{Features: textShape[2], Values: part(text, shape[0], i)}
		for _, real := range part(mask, shape[0], i) {
			s.Prompt.Mask = append(s.Prompt.Mask, real != 0)
		}
		for k, size := range inputs.Controls {
			x, shape := floats(t, f, fmt.Sprintf("control.%d", k))
			x = turned(part(x, shape[0], i), shape[1])
			s.Controls = append(s.Controls, latent([]int{1, shape[2], size[1], size[2]}, x))
		}
		if len(inputs.Controls) > 0 {
			for _, is := range int64s(t, f, "slots") {
				s.Prompt.Slots = append(s.Prompt.Slots, is != 0)
			}
		}
		g.samples = append(g.samples, s)
	}
	return g
}

// turned is x [rows, columns] as [columns, rows].
func turned(x []float32, rows int) []float32 {
	columns := len(x) / rows
	y := make([]float32, len(x))
	for i := range x {
		y[i%columns*rows+i/columns] = x[i]
	}
	return y
}

func int64s(t testing.TB, f *safetensors.File, name string) []int64 {
	v, err := f.Lookup(name)
	require.NoError(t, err)
	x, err := safetensors.As[int64](v)
	require.NoError(t, err)
	return x
}
