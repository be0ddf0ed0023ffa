package vae

import (
	"context"
	"math"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/diffusion/dit"
	"github.com/lorafuse/lorafuse/internal/dev/testdevice"
	"github.com/lorafuse/lorafuse/safetensors"
	"github.com/lorafuse/lorafuse/tensor"
)

const root = "../../testdata/dit"

// opened is the autoencoder in a folder of goldens.
func opened(t *testing.T, dir string, o Options) *VAE {
	t.Helper()
	v, err := Open(testdevice.Open(t, backend.Options{}), dir, o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, v.Close()) })
	return v
}

// golden are the samples of a tensor of a golden.
func golden(t *testing.T, path, name string) (samples [][]float32, height, width int) {
	t.Helper()
	f, err := safetensors.Open(path)
	require.NoError(t, err)
	defer f.Close()
	view, err := f.Lookup(name)
	require.NoError(t, err)
	x, err := tensor.Tensor{DType: tensor.F32, Shape: view.Shape, Data: view.Bytes()}.Float32s()
	require.NoError(t, err)
	n := len(x) / view.Shape[0]
	for i := range view.Shape[0] {
		samples = append(samples, x[i*n:(i+1)*n])
	}
	last := len(view.Shape)
	return samples, view.Shape[last-2], view.Shape[last-1]
}

// requireClose bounds the largest difference by 1e-5 of the largest number, and by 1e-4.
func requireClose(t *testing.T, want, got []float32) {
	t.Helper()
	require.Len(t, got, len(want))
	largest, worst := 0.0, 0.0
	for i, x := range want {
		largest = max(largest, math.Abs(float64(x)))
		d := math.Abs(float64(got[i] - x))
		require.False(t, math.IsNaN(d))
		worst = max(worst, d)
	}
	require.LessOrEqual(t, worst, min(1e-4, 1e-5*largest), "largest %g", largest)
	t.Logf("worst %.2g of %.2g", worst, largest)
}

func TestGoldens(t *testing.T) {
	for _, name := range []string{"vae-flux", "vae-qwen"} {
		t.Run(name, func(t *testing.T) {
			v := opened(t, filepath.Join(root, name, "vae"), Options{})
			path := filepath.Join(root, name, "golden.safetensors")
			images, h, w := golden(t, path, "image")
			means, _, _ := golden(t, path, "mean")
			logvars, _, _ := golden(t, path, "logvar")
			stds, _, _ := golden(t, path, "std")
			latents, lh, lw := golden(t, path, "latents")
			pictures, _, _ := golden(t, path, "decoded")
			for i := range images {
				m, err := v.Encode(context.Background(), Picture{v.Space().Colours, h, w, images[i]})
				require.NoError(t, err)
				requireClose(t, means[i], m.Mean.Values)
				requireClose(t, logvars[i], m.LogVar.Values)
				std := m
				std.Mean.Values = make([]float32, len(m.Mean.Values))
				ones := make([]float32, len(m.Mean.Values))
				for i := range ones {
					ones[i] = 1
				}
				requireClose(t, stds[i], std.Sample(ones).Values)
				p, err := v.Decode(context.Background(), dit.Latent{Channels: v.Space().Channels, Frames: 1, Height: lh, Width: lw, Values: latents[i]})
				require.NoError(t, err)
				assert.Equal(t, []int{h, w}, []int{p.Height, p.Width})
				requireClose(t, pictures[i], p.Values)
			}
		})
	}
}
