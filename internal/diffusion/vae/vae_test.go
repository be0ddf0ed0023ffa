package vae

import (
	"context"
	"math"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/dev/testdevice"
	"github.com/lorafuse/lorafuse/internal/diffusion/dit"
	"github.com/lorafuse/lorafuse/safetensors"
	"github.com/lorafuse/lorafuse/tensor"
)

const root = "../../../testdata/dit"

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

// has reports whether a golden has a tensor.
func has(t *testing.T, path, name string) bool {
	t.Helper()
	f, err := safetensors.Open(path)
	require.NoError(t, err)
	defer f.Close()
	_, err = f.Lookup(name)
	return err == nil
}

// goldens are folders of autoencoders with a golden each: the first two are made by others.
var goldens = map[string]string{
	root + "/vae-flux/vae": root + "/vae-flux", root + "/vae-qwen/vae": root + "/vae-qwen",
	"testdata/kl-bf16": "testdata/kl-bf16", "testdata/kl-plain": "testdata/kl-plain", "testdata/kl-tiles": "testdata/kl-tiles", "testdata/kl-colours": "testdata/kl-colours",
	"testdata/flux2": "testdata/flux2", "testdata/qwen-bf16": "testdata/qwen-bf16", "testdata/qwen-tiles": "testdata/qwen-tiles",
}

func TestGoldens(t *testing.T) {
	for dir, folder := range goldens {
		t.Run(filepath.Base(folder), func(t *testing.T) {
			path := filepath.Join(folder, "golden.safetensors")
			v := opened(t, dir, Options{})
			v.requireGolden(t, path, "")
			if has(t, path, "tiled.mean") {
				opened(t, dir, Options{Tile: 32}).requireGolden(t, path, "tiled.")
				opened(t, dir, Options{Tile: 64}).requireGolden(t, path, "")
			}
			if has(t, path, "std") {
				stds, _, _ := golden(t, path, "std")
				logvars, _, _ := golden(t, path, "logvar")
				for i, l := range logvars {
					n := dit.Latent{Values: l}
					requireClose(t, stds[i], Moments{dit.Latent{Values: make([]float32, len(l))}, n}.Sample(slices.Repeat([]float32{1}, len(l))).Values)
				}
			}
		})
	}
}

// requireGolden encodes and decodes what a golden has; prefix is that of the results.
func (v *VAE) requireGolden(t *testing.T, path, prefix string) {
	t.Helper()
	images, h, w := golden(t, path, "image")
	means, _, _ := golden(t, path, prefix+"mean")
	logvars, _, _ := golden(t, path, prefix+"logvar")
	latents, lh, lw := golden(t, path, "latents")
	pictures, _, _ := golden(t, path, prefix+"decoded")
	for i := range images {
		m, err := v.Encode(context.Background(), Picture{v.Space().Colours, h, w, images[i]})
		require.NoError(t, err)
		require.Equal(t, []int{1, lh, lw}, []int{m.Mean.Frames, m.Mean.Height, m.Mean.Width})
		requireClose(t, means[i], m.Mean.Values)
		requireClose(t, logvars[i], m.LogVar.Values)
		p, err := v.Decode(context.Background(), dit.Latent{Channels: v.Space().Channels, Frames: 1, Height: lh, Width: lw, Values: latents[i]})
		require.NoError(t, err)
		require.Equal(t, []int{h, w}, []int{p.Height, p.Width})
		requireClose(t, pictures[i], p.Values)
	}
}

func TestScale(t *testing.T) {
	for dir, folder := range goldens {
		path := filepath.Join(folder, "golden.safetensors")
		s, err := readScale(dir)
		require.NoError(t, err)
		if !has(t, path, "normalised") {
			continue
		}
		latents, h, w := golden(t, path, "latents")
		want, _, _ := golden(t, path, "normalised")
		for i, x := range latents {
			z := dit.Latent{Channels: len(x) / h / w, Frames: 1, Height: h, Width: w, Values: slices.Clone(x)}
			require.Contains(t, []int{0, z.Channels}, s.Channels())
			s.Normalise(z)
			requireClose(t, want[i], z.Values)
			s.Denormalise(z)
			requireClose(t, x, z.Values)
		}
	}
	s, err := readScale(root + "/vae-flux/vae")
	require.NoError(t, err)
	z := dit.Latent{Channels: 1, Frames: 2, Height: 1, Width: 1, Values: []float32{0.1159, 1.1159}}
	s.Normalise(z)
	assert.InDeltaSlice(t, []float32{0, 0.3611}, z.Values, 1e-6)
	s, err = readScale(root + "/vae-qwen/vae")
	require.NoError(t, err)
	z = dit.Latent{Channels: 5, Frames: 1, Height: 1, Width: 1, Values: []float32{1, 2, 3, 4, 5}}
	s.Normalise(z)
	assert.Equal(t, []float32{1, 2, 3, 4, 5}, z.Values, "of another autoencoder")
}

// TestProgramsAreKept has pictures of two sizes in turns.
func TestProgramsAreKept(t *testing.T) {
	v := opened(t, "testdata/kl-tiles", Options{})
	picture := func(h, w int) Picture {
		p := Picture{3, h, w, make([]float32, 3*h*w)}
		for i := range p.Values {
			p.Values[i] = float32(i%7)/4 - 0.5
		}
		return p
	}
	first, err := v.Encode(context.Background(), picture(8, 6))
	require.NoError(t, err)
	for range 2 {
		_, err = v.Encode(context.Background(), picture(10, 12))
		require.NoError(t, err)
		again, err := v.Encode(context.Background(), picture(8, 6))
		require.NoError(t, err)
		assert.Equal(t, first, again)
	}
}

// readScale reads the scale of a folder that has its weights.
func readScale(dir string) (*Scale, error) {
	return ReadScale(dir, func() (string, error) { return dir, nil })
}
