package cache

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/safetensors/torchfile"
	"github.com/lorafuse/lorafuse/tensor"
)

// The caches of scripts/make_cache_goldens.py.
var pythonCaches = map[string]tensor.DType{"bf16": tensor.BF16, "f16": tensor.F16, "f32": tensor.F32}

// pythonSamples have no files: entries without a key do not ask for them.
var pythonSamples = []Sample{
	{Image: "a.png", Caption: "a.txt", Control: "a.png"},
	{Image: "b.jpg", Caption: "b.txt", Control: "b.jpg"},
	{Image: "c.webp", Caption: "c.txt", Control: "c.webp"},
}

// TestPythonSamples: entries written by Python, in either format, are read as Python reads them into a padded batch,
// bit for bit.
func TestPythonSamples(t *testing.T) {
	for name, dtype := range pythonCaches {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join("testdata", "python", name)
			c, err := Open(dir, Options{Unkeyed: Accept})
			require.NoError(t, err)
			want, err := LoadEmbeddings(filepath.Join(dir, "batch.safetensors"))
			require.NoError(t, err)
			empty, err := c.Empty(t.Context(), nil)
			require.NoError(t, err)
			for i, s := range pythonSamples {
				e, err := c.Sample(t.Context(), s, false)
				require.NoError(t, err)
				for name, x := range map[string]tensor.Tensor{"latents": e.Latent, "control_latents": e.Control, "prompt_embeds": e.Text.Embeds} {
					require.Equal(t, dtype, x.DType)
					require.Equal(t, x.Data, corner(want[name], append([]int{i}, x.Shape...)), name)
				}
				mask := int64s(want["prompt_embeds_mask"])
				require.Equal(t, e.Text.Mask, mask[i*len(mask)/len(pythonSamples):][:len(e.Text.Mask)])
				e, err = c.Sample(t.Context(), s, true)
				require.NoError(t, err)
				require.Equal(t, empty, e.Text)
			}
		})
	}
}

// corner returns the bytes of the first shape[1:] elements along the axes of x[shape[0]].
func corner(x tensor.Tensor, shape []int) (data []byte) {
	size := len(x.Data) / x.NumElements()
	var visit func(axis, at int)
	visit = func(axis, at int) {
		if axis == len(shape) {
			data = append(data, x.Data[at*size:][:size]...)
			return
		}
		for i := range shape[axis] {
			visit(axis+1, at*x.Shape[axis]+i)
		}
	}
	visit(1, shape[0])
	return data
}

// Entries without a key are refused, rebuilt or accepted.
func TestUnkeyed(t *testing.T) {
	w := newWorld(t, 1)
	path := w.entry("text_embs/a.txt")
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o777))
	python := embed("made by Python")
	x, err := python.tensors()
	require.NoError(t, err)
	require.NoError(t, SaveEmbeddings(path, x))
	caption := w.samples[0].Caption
	options := recipes()

	_, err = w.open(options).Text(t.Context(), caption, w.text)
	require.ErrorIs(t, err, ErrUnkeyed)
	require.ErrorContains(t, err, path)
	options.Unkeyed = Accept
	got, err := w.open(options).Text(t.Context(), caption, w.text)
	require.NoError(t, err)
	require.Equal(t, python, got)
	require.Empty(t, w.taken())
	options.Unkeyed = Rebuild
	_, err = w.open(options).Text(t.Context(), caption, nil)
	require.ErrorIs(t, err, ErrUnkeyed)
	got, err = w.open(options).Text(t.Context(), caption, w.text)
	require.NoError(t, err)
	require.Equal(t, embed("caption a"), got)
	options.Unkeyed = Refuse
	got, err = w.open(options).Text(t.Context(), caption, nil)
	require.NoError(t, err, "it has a key now")
	require.Equal(t, embed("caption a"), got)
}

// SaveEmbeddings writes the same bytes as Python.
func TestSaveEmbeddings(t *testing.T) {
	found := 0
	require.NoError(t, filepath.WalkDir("testdata", func(path string, d os.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".safetensors" || d.Name() == "batch.safetensors" {
			return err
		}
		found++
		x, err := LoadEmbeddings(path)
		require.NoError(t, err)
		again := filepath.Join(t.TempDir(), "again.safetensors")
		require.NoError(t, SaveEmbeddings(again, x))
		require.Equal(t, files(t, filepath.Dir(path))[d.Name()], files(t, filepath.Dir(again))["again.safetensors"], path)
		return nil
	}))
	require.Equal(t, 5+3*7, found)
}

// Every dtype of package tensor is returned unchanged.
func TestRoundTripOfTypes(t *testing.T) {
	path := filepath.Join(t.TempDir(), "all.safetensors")
	all := map[string]tensor.Tensor{}
	for d := tensor.Bool; d <= tensor.U64; d++ {
		x, err := tensor.New(d, 2, 4)
		require.NoError(t, err)
		for i := range x.Data {
			x.Data[i] = byte(i * 37)
		}
		all[d.String()] = x
	}
	all["none"] = tensor.Tensor{DType: tensor.F32, Shape: []int{0, 4}, Data: []byte{}}
	require.NoError(t, SaveEmbeddings(path, all))
	got, err := LoadEmbeddings(path)
	require.NoError(t, err)
	require.Equal(t, all, got)

	err = SaveEmbeddings(path, map[string]tensor.Tensor{"x": {DType: tensor.F32, Shape: []int{3}, Data: make([]byte, 8)}})
	require.ErrorIs(t, err, ErrTensor)
	require.ErrorContains(t, err, "F32[3] takes 12 bytes, found 8")
	_, err = LoadEmbeddings(filepath.Join(t.TempDir(), "none.safetensors"))
	require.ErrorIs(t, err, os.ErrNotExist)
}

// The .pt file of the same name holds the same tensors.
func TestTwins(t *testing.T) {
	twins, err := filepath.Glob("testdata/dit/*/*.pt")
	require.NoError(t, err)
	require.Len(t, twins, 5)
	for _, path := range twins {
		want, err := LoadEmbeddings(strings.TrimSuffix(path, ".pt") + ".safetensors")
		require.NoError(t, err)
		got, err := LoadEmbeddings(path)
		require.NoError(t, err)
		if bare, ok := got[torchfile.BareName]; ok {
			got = map[string]tensor.Tensor{latentName: bare}
		}
		require.Equal(t, want, got, path)
	}
}

// A safetensors file is preferred to a .pt file; a damaged one is never skipped.
func TestFallback(t *testing.T) {
	w := newWorld(t, 1)
	s := w.samples[0]
	options := recipes()
	options.Unkeyed = Accept
	for _, folder := range []string{"text_embs", "img_embs"} {
		require.NoError(t, os.MkdirAll(filepath.Join(w.cacheDir(), folder), 0o777))
	}
	put := func(from, to string) {
		raw, err := os.ReadFile(filepath.Join("testdata/dit", from))
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(w.cacheDir(), to), raw, 0o666))
	}
	put("text_embs/000.txt.pt", "text_embs/a.txt.pt")
	put("img_embs/000.png.pt", "img_embs/a.png.pt")
	text, err := w.open(options).Text(t.Context(), s.Caption, w.text)
	require.NoError(t, err)
	require.Equal(t, []int{7, 32}, text.Embeds.Shape)
	latent, err := w.open(options).Image(t.Context(), s.Image, w.image)
	require.NoError(t, err)
	require.Equal(t, []int{4, 1, 8, 8}, latent.Shape)
	require.Empty(t, w.taken())

	// A wrong .pt is a corrupt entry.
	put("img_embs/000.png.pt", "text_embs/a.txt.pt")
	_, err = w.open(options).Text(t.Context(), s.Caption, w.text)
	require.ErrorIs(t, err, ErrCorrupt)
	require.NoError(t, os.WriteFile(filepath.Join(w.cacheDir(), "text_embs/a.txt.pt"), []byte("PK\x03\x04"), 0o666))
	_, err = w.open(options).Text(t.Context(), s.Caption, w.text)
	require.ErrorIs(t, err, ErrCorrupt)

	put("text_embs/000.txt.pt", "text_embs/a.txt.pt")
	put("text_embs/001.txt.safetensors", "text_embs/a.txt.safetensors")
	text, err = w.open(options).Text(t.Context(), s.Caption, w.text)
	require.NoError(t, err)
	require.Equal(t, []int{5, 32}, text.Embeds.Shape, "the safetensors file comes first")
	require.NoError(t, os.Truncate(w.entry("text_embs/a.txt"), 100))
	_, err = w.open(options).Text(t.Context(), s.Caption, w.text)
	require.ErrorIs(t, err, ErrCorrupt)
	options.Corrupt = Rebuild
	text, err = w.open(options).Text(t.Context(), s.Caption, w.text)
	require.NoError(t, err)
	require.Equal(t, embed("caption a"), text)
	require.NoError(t, errors.Join(os.Remove(w.entry("text_embs/a.txt"))))
	text, err = w.open(options).Text(t.Context(), s.Caption, nil)
	require.NoError(t, err)
	require.Equal(t, []int{7, 32}, text.Embeds.Shape, "the .pt file is left alone")
}
