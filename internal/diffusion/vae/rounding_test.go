package vae

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/dev/testdevice"
	"github.com/lorafuse/lorafuse/internal/diffusion/dit"
)

// TestRounding compares the error of precision bf16 to that of PyTorch's autocast to bfloat16, both against exact
// latents and images. The error of one case is chance in part: all cases together must be at most PyTorch's.
func TestRounding(t *testing.T) {
	raw, err := os.ReadFile("testdata/rounding.json")
	require.NoError(t, err)
	var theirs map[string]map[string]float64
	require.NoError(t, json.Unmarshal(raw, &theirs))
	require.Len(t, theirs, len(goldens))
	dev := testdevice.Open(t, backend.Options{Precision: backend.BF16})
	var rounding testdevice.Rounding
	for dir, folder := range goldens {
		name := filepath.Base(folder)
		t.Run(name, func(t *testing.T) {
			v, err := Open(dev, dir, Options{})
			require.NoError(t, err)
			defer func() { require.NoError(t, v.Close()) }()
			for result, d := range v.deviations(t, filepath.Join(folder, "golden.safetensors")) {
				t.Run(result, func(t *testing.T) { rounding.Add(t, d.Relative(), theirs[name][result], 1.25) })
			}
		})
	}
	rounding.Check(t)
}

// deviations returns the error of each result of a golden.
func (v *VAE) deviations(t *testing.T, path string) map[string]*testdevice.Deviation {
	t.Helper()
	all := map[string]*testdevice.Deviation{"mean": {}, "logvar": {}, "decoded": {}}
	add := func(name string, i int, got []float32) {
		want, _, _ := golden(t, path, name)
		require.Len(t, got, len(want[i]))
		for j, w := range want[i] {
			all[name].Add(float64(got[j]), float64(w))
		}
	}
	images, h, w := golden(t, path, "image")
	latents, lh, lw := golden(t, path, "latents")
	for i := range images {
		m, err := v.Encode(context.Background(), Picture{v.Space().Colours, h, w, images[i]})
		require.NoError(t, err)
		p, err := v.Decode(context.Background(), dit.Latent{Channels: v.Space().Channels, Frames: 1, Height: lh, Width: lw, Values: latents[i]})
		require.NoError(t, err)
		add("mean", i, m.Mean.Values)
		add("logvar", i, m.LogVar.Values)
		add("decoded", i, p.Values)
	}
	return all
}
