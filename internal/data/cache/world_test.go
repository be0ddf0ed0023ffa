package cache

import (
	"bytes"
	"context"
	"encoding/binary"
	"math"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/tensor"
)

// world is a folder of images with captions, and encoders that count.
type world struct {
	t       testing.TB
	dir     string
	samples []Sample

	mu     sync.Mutex
	builds []string // what was encoded
}

// newWorld creates images named a.png, b.png, … with captions and control images.
func newWorld(t testing.TB, images int) *world {
	w := &world{t: t, dir: t.TempDir()}
	for i := range images {
		name := string(rune('a' + i))
		w.samples = append(w.samples, Sample{
			Image:   w.write("data/"+name+".png", "image "+name),
			Caption: w.write("data/"+name+".txt", "caption "+name),
			Control: w.write("control/"+name+".png", "control "+name),
		})
	}
	return w
}

func (w *world) write(name, content string) string {
	path := filepath.Join(w.dir, name)
	require.NoError(w.t, os.MkdirAll(filepath.Dir(path), 0o777))
	require.NoError(w.t, os.WriteFile(path, []byte(content), 0o666))
	return path
}

func (w *world) cacheDir() string { return filepath.Join(w.dir, "cache") }

// entry returns the path of an entry such as text_embs/a.txt.
func (w *world) entry(name string) string { return filepath.Join(w.cacheDir(), name) + ".safetensors" }

func (w *world) open(o Options) *Cache {
	c, err := Open(w.cacheDir(), o)
	require.NoError(w.t, err)
	return c
}

// recipes returns options with which entries can be built.
func recipes() Options {
	return Options{
		Text:  Recipe{Model: "text/encoder@1", Settings: map[string]string{"max_sequence_length": "1024", "dtype": "bf16"}},
		Image: Recipe{Model: "vae@1", Settings: map[string]string{"size": "512"}},
	}
}

func (w *world) note(what string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.builds = append(w.builds, what)
}

// taken returns the names encoded since the last call.
func (w *world) taken() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	all := w.builds
	w.builds = nil
	return all
}

func (w *world) encoders() Encoders { return Encoders{Text: w.text, Image: w.image} }

// text returns an embedding with a token per byte of the text.
func (w *world) text(text string) (Embedding, error) {
	w.note(text)
	return embed(text), nil
}

func (w *world) textWith(text string, image []byte) (Embedding, error) {
	w.note(text + "+" + string(image))
	return embed(text + string(image)), nil
}

func embed(text string) Embedding {
	e := Embedding{Embeds: floats(tensor.BF16, []byte(text+text), len(text), 2)}
	for range len(text) {
		e.Mask = append(e.Mask, 1)
	}
	return e
}

// image returns a latent with a pixel per byte of the image.
func (w *world) image(image []byte) (tensor.Tensor, error) {
	w.note(string(image))
	return floats(tensor.F16, bytes.Repeat(image, 2), 2, 1, 1, len(image)), nil
}

// floats returns a tensor with the values of the bytes.
func floats(d tensor.DType, values []byte, shape ...int) tensor.Tensor {
	x, err := tensor.New(d, shape...)
	if err != nil {
		panic(err)
	}
	all := make([]float32, len(values))
	for i, v := range values {
		all[i] = float32(v)
	}
	if err := tensor.FromFloat32(x.Data, all, d); err != nil {
		panic(err)
	}
	return x
}

// all reads samples; dropped captions give the empty prompt.
func (w *world) all(c *Cache, dropped bool) (encoded []Encoded, err error) {
	for _, s := range w.samples {
		e, err := c.Sample(w.t.Context(), s, dropped)
		if err != nil {
			return nil, err
		}
		encoded = append(encoded, e)
	}
	return encoded, nil
}

// build runs Build with everything.
func (w *world) build(c *Cache, o BuildOptions) Stats {
	w.t.Helper()
	stats, err := c.Build(context.Background(), w.samples, w.encoders(), o)
	require.NoError(w.t, err)
	return stats
}

// files returns the contents of a folder by path.
func files(t testing.TB, dir string) map[string]string {
	all := map[string]string{}
	require.NoError(t, filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		raw, err := os.ReadFile(path)
		name, _ := filepath.Rel(dir, path)
		all[filepath.ToSlash(name)] = string(raw)
		return err
	}))
	return all
}

func names(files map[string]string) []string {
	var all []string
	for name := range files {
		all = append(all, name)
	}
	return all
}

// flip changes one bit of a file, counted from its end.
func flip(t testing.TB, path string, fromEnd int) {
	raw, err := os.ReadFile(path)
	require.NoError(t, err)
	raw[len(raw)-fromEnd] ^= 1
	require.NoError(t, os.WriteFile(path, raw, 0o666))
}

func int64s(x tensor.Tensor) []int64 {
	v := make([]int64, len(x.Data)/8)
	for i := range v {
		v[i] = int64(binary.LittleEndian.Uint64(x.Data[8*i:]))
	}
	return v
}

func nanTensor() tensor.Tensor {
	x := floats(tensor.F32, []byte{1, 2}, 2, 1, 1)
	binary.LittleEndian.PutUint32(x.Data, math.Float32bits(float32(math.NaN())))
	return x
}
