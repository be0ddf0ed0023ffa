package diffusion

import (
	"bytes"
	"context"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/dev/testdevice"
	"github.com/lorafuse/lorafuse/internal/data/cache"
	"github.com/lorafuse/lorafuse/internal/data/picture"
	"github.com/lorafuse/lorafuse/internal/diffusion/vae"
	"github.com/lorafuse/lorafuse/internal/ir"
	"github.com/lorafuse/lorafuse/internal/model"
	"github.com/lorafuse/lorafuse/tensor"
)

// counting is a device that counts what is compiled for it.
type counting struct {
	backend.Device
	compiled int
}

func (c *counting) Compile(p *ir.Program) (backend.Executable, error) {
	c.compiled++
	return c.Device.Compile(p)
}

// album is a pipeline, a folder of pictures of three shapes, and a cache.
type album struct {
	t        *testing.T
	pipeline *Pipeline
	samples  []cache.Sample
	dir      string
	dev      *counting
}

func newAlbum(t *testing.T, name, auto string) *album {
	dir := goldenPipeline(t, name)
	if name == "qwenimage-edit" {
		dir = editor(t, "QwenImageEditPlusPipeline")
	}
	require.NoError(t, os.CopyFS(filepath.Join(dir, VAE), os.DirFS(filepath.Join("../../testdata/dit", auto, "vae"))))
	listed(t, dir)
	p, err := Open(dir)
	require.NoError(t, err)
	a := &album{t: t, pipeline: p, dir: t.TempDir(), dev: &counting{Device: testdevice.Open(t, backend.Options{})}}
	for i, size := range []image.Point{{40, 40}, {90, 40}, {41, 80}} {
		a.samples = append(a.samples, cache.Sample{
			Image:   a.write(fmt.Sprintf("%d.png", i), drawn(t, size)),
			Caption: a.write(fmt.Sprintf("%d.txt", i), []byte(fmt.Sprintf("picture %d", i))),
		})
	}
	return a
}

// listed adds the autoencoder to the index of a pipeline.
func listed(t *testing.T, dir string) {
	c, err := model.ReadConfig(filepath.Join(dir, VAE))
	require.NoError(t, err)
	class := c.Architecture
	path := filepath.Join(dir, IndexFile)
	raw, err := os.ReadFile(path)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(path, bytes.Replace(raw, []byte("{"), fmt.Appendf(nil, `{"vae": ["diffusers", %q],`, class), 1), 0o600))
}

func (a *album) write(name string, data []byte) string {
	path := filepath.Join(a.dir, name)
	require.NoError(a.t, os.WriteFile(path, data, 0o600))
	return path
}

// drawn is a PNG with something in it.
func drawn(t *testing.T, size image.Point) []byte {
	img := image.NewRGBA(image.Rectangle{Max: size})
	for y := range size.Y {
		for x := range size.X {
			img.Set(x, y, color.RGBA{uint8(5 * x), uint8(3 * y), uint8(x * y), 255})
		}
	}
	var b bytes.Buffer
	require.NoError(t, png.Encode(&b, img))
	return b.Bytes()
}

func (a *album) cache() string { return filepath.Join(a.dir, "cache") }

func (a *album) build(o CacheOptions) (cache.Stats, error) {
	a.dev.compiled = 0
	return a.pipeline.BuildCache(context.Background(), a.dev, a.cache(), a.samples, o)
}

// entries reads all samples of the cache.
func (a *album) entries(o CacheOptions) []cache.Encoded {
	made, err := a.pipeline.CacheOptions(o)
	require.NoError(a.t, err)
	c, err := cache.Open(a.cache(), made)
	require.NoError(a.t, err)
	defer c.Close()
	var all []cache.Encoded
	for _, s := range a.samples {
		e, err := c.Sample(context.Background(), s, false)
		require.NoError(a.t, err)
		all = append(all, e)
	}
	return all
}

// TestBuildCache: entries are what the encoders make of captions and pictures, and a second
// call opens nothing.
func TestBuildCache(t *testing.T) {
	for name, auto := range map[string]string{"qwenimage": "vae-qwen", "flux": "vae-flux"} {
		t.Run(name, func(t *testing.T) {
			a := newAlbum(t, name, auto)
			least, err := a.pipeline.leastMultiple()
			require.NoError(t, err)
			o := CacheOptions{Side: 3 * least, Workers: 2}
			tasks := map[string]int{}
			o.Progress = func(task string, done, total int) { tasks[task]++ }
			stats, err := a.build(o)
			require.NoError(t, err)
			require.Equal(t, cache.Stats{Entries: 7, Built: 7}, stats)
			require.Equal(t, map[string]int{TextTask: 4, PictureTask: 3}, tasks)
			a.check(o)

			stats, err = a.build(o)
			require.NoError(t, err)
			require.Equal(t, cache.Stats{Entries: 7}, stats)
			require.Zero(t, a.dev.compiled, "nothing is opened")

			a.write("1.txt", []byte("another picture"))
			stats, err = a.build(o)
			require.NoError(t, err)
			require.Equal(t, 1, stats.Built, "one caption has changed")
			a.check(o)

			o.Side = 2 * least
			stats, err = a.build(o)
			require.NoError(t, err)
			require.Equal(t, 3, stats.Built, "pictures have another size")
			o.Sample = true
			stats, err = a.build(o)
			require.NoError(t, err)
			require.Equal(t, 3, stats.Built, "latents are drawn")
			first := a.entries(o)
			o.Seed = 1
			_, err = a.build(o)
			require.NoError(t, err)
			require.NotEqual(t, first[0].Latent, a.entries(o)[0].Latent)
			o.Seed = 0
			_, err = a.build(o)
			require.NoError(t, err)
			require.Equal(t, first, a.entries(o), "what is drawn is a function of the seed")
		})
	}
}

// check compares the entries with what the encoders give by themselves.
func (a *album) check(o CacheOptions) {
	t, ctx := a.t, context.Background()
	e, err := a.pipeline.OpenEncoder(ctx, a.dev)
	require.NoError(t, err)
	defer e.Close()
	dir, err := a.pipeline.Folder(VAE)
	require.NoError(t, err)
	v, err := vae.Open(a.dev, dir, vae.Options{})
	require.NoError(t, err)
	defer v.Close()
	buckets, err := picture.NewBuckets(o.Side, o.Side/3)
	require.NoError(t, err)
	sizes := map[picture.Size]bool{}
	for i, got := range a.entries(o) {
		text, err := cache.ReadCaption(a.samples[i].Caption)
		require.NoError(t, err)
		p, err := e.Encode(ctx, text)
		require.NoError(t, err)
		requireStored(t, got.Text.Embeds, p.Values, len(p.Values)/p.Features, p.Features)
		if p.Pooled != nil {
			requireStored(t, got.Text.Pooled, p.Pooled, len(p.Pooled))
		}
		raw, err := os.ReadFile(a.samples[i].Image)
		require.NoError(t, err)
		img, err := picture.Decode(raw)
		require.NoError(t, err)
		size := buckets.Nearest(picture.SizeOf(img))
		sizes[size] = true
		m, err := v.Encode(ctx, vae.Picture{Channels: 3, Height: size.Height, Width: size.Width, Values: picture.Cover(img, size)})
		require.NoError(t, err)
		shape := []int{m.Mean.Channels, m.Mean.Height, m.Mean.Width}
		if len(got.Latent.Shape) == 4 { // that of a video
			shape = []int{m.Mean.Channels, 1, m.Mean.Height, m.Mean.Width}
		}
		require.Equal(t, tensor.F32, got.Latent.DType)
		requireStored(t, got.Latent, m.Mean.Values, shape...)
	}
	require.Len(t, sizes, 3, "buckets")
}

// requireStored compares a tensor with the numbers that it was made of.
func requireStored(t *testing.T, got tensor.Tensor, want []float32, shape ...int) {
	t.Helper()
	require.Equal(t, shape, got.Shape)
	x, err := stored(got.DType, want, shape...)
	require.NoError(t, err)
	require.Equal(t, x.Data, got.Data)
}

// TestCacheErrors: what is wrong is one line that names it.
func TestCacheErrors(t *testing.T) {
	a := newAlbum(t, "qwenimage", "vae-qwen")
	_, err := a.build(CacheOptions{Side: 5})
	require.ErrorIs(t, err, picture.ErrSize)
	_, err = a.build(CacheOptions{Side: 48, Multiple: 3})
	require.ErrorIs(t, err, picture.ErrSize)
	require.ErrorContains(t, err, "multiples of 3, expected multiples of")
	_, err = a.build(CacheOptions{Side: 48})
	require.NoError(t, err)

	// Another text encoder.
	config := filepath.Join(a.pipeline.Dir, TextEncoder, "config.json")
	raw, err := os.ReadFile(config)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(config, append(raw, '\n'), 0o600))
	_, err = a.build(CacheOptions{Side: 48})
	require.ErrorIs(t, err, ErrCache)
	assert.ErrorContains(t, err, "empty_embedding.safetensors was made with Qwen2_5_VLForConditionalGeneration")
	assert.NotContains(t, err.Error(), "\n")
	stats, err := a.build(CacheOptions{Side: 48, Rebuild: true})
	require.NoError(t, err)
	require.Equal(t, cache.Stats{Entries: 7, Built: 4}, stats)

	// Pictures that are none.
	a.samples[1].Image = a.write("bad.png", []byte("\x89PNG\r\n\x1a\n"))
	_, err = a.build(CacheOptions{Side: 48})
	require.ErrorIs(t, err, picture.ErrPicture)
	assert.ErrorContains(t, err, "bad.png.safetensors of "+a.samples[1].Image+": ")

	// Parts that are not needed need not be there.
	a = newAlbum(t, "qwenimage", "vae-qwen")
	require.NoError(t, os.RemoveAll(filepath.Join(a.pipeline.Dir, TextEncoder)))
	a.pipeline, err = Open(a.pipeline.Dir)
	require.NoError(t, err)
	_, err = a.build(CacheOptions{Side: 48})
	require.ErrorIs(t, err, ErrPart)
	require.NoDirExists(t, a.cache())
	stats, err = a.build(CacheOptions{Side: 48, PicturesOnly: true})
	require.NoError(t, err)
	require.Equal(t, cache.Stats{Entries: 3, Built: 3}, stats)
}

// What other programs have left in a folder makes no other model of it.
func TestCacheMindsWhatIsRead(t *testing.T) {
	a := newAlbum(t, "qwenimage", "vae-qwen")
	stats, err := a.build(CacheOptions{Side: 48})
	require.NoError(t, err)
	require.Equal(t, 7, stats.Built)
	for _, name := range []string{"text_encoder/model.fp16.safetensors", "text_encoder/pytorch_model.bin", "vae/README.md", "tokenizer/tokenizer.model.bin"} {
		require.NoError(t, os.WriteFile(filepath.Join(a.pipeline.Dir, name), []byte(name), 0o600))
	}
	stats, err = a.build(CacheOptions{Side: 48})
	require.NoError(t, err)
	require.Zero(t, stats.Built)
}

// A call that was ended goes on where it was.
func TestCacheGoesOn(t *testing.T) {
	a := newAlbum(t, "flux", "vae-flux")
	ctx, cancel := context.WithCancel(context.Background())
	o := CacheOptions{Side: 48, Progress: func(_ string, done, _ int) {
		if done == 2 {
			cancel()
		}
	}}
	_, err := a.pipeline.BuildCache(ctx, a.dev, a.cache(), a.samples, o)
	require.ErrorIs(t, err, context.Canceled)
	o.Progress = nil
	stats, err := a.build(o)
	require.NoError(t, err)
	require.Equal(t, cache.Stats{Entries: 7, Built: 5}, stats)
}
