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

// TestPythonBatch: what Python has cached, in either format, collates to what
// Python's function makes of it, bit for bit.
func TestPythonBatch(t *testing.T) {
	for name, dtype := range pythonCaches {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join("testdata", "python", name)
			c, err := Open(dir, Options{Unkeyed: Accept})
			require.NoError(t, err)
			b, err := c.Batch(t.Context(), pythonSamples, nil)
			require.NoError(t, err)
			require.Equal(t, dtype, b.Latents.DType)
			want, err := LoadEmbeddings(filepath.Join(dir, "batch.safetensors"))
			require.NoError(t, err)
			require.Equal(t, want, map[string]tensor.Tensor{
				"latents": b.Latents, "control_latents": b.Controls, "prompt_embeds": b.Embeds, "prompt_embeds_mask": b.EmbedsMask,
			})

			empty, err := c.Empty(t.Context(), nil)
			require.NoError(t, err)
			b, err = c.Batch(t.Context(), pythonSamples, func(i int) bool { return i == 0 })
			require.NoError(t, err)
			require.Equal(t, empty.Embeds.Data, b.Embeds.Data[:len(empty.Embeds.Data)])
			require.Equal(t, []int{3, 3, 3}, b.Embeds.Shape, "the longest caption has been dropped")
		})
	}
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

// SaveEmbeddings writes the bytes that Python has written.
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

// Every dtype of package tensor comes back as it was.
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

// The .pt twin of a safetensors file holds the same.
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

// The order is safetensors, then .pt; a damaged safetensors file is never
// passed over.
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
