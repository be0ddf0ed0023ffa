package diffusion

import (
	"context"
	"encoding/json"
	"fmt"
	"image"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/internal/data/cache"
	"github.com/lorafuse/lorafuse/internal/data/picture"
	"github.com/lorafuse/lorafuse/internal/diffusion/dit"
	"github.com/lorafuse/lorafuse/internal/diffusion/vae"
	"github.com/lorafuse/lorafuse/safetensors"
)

func init() {
	borrowed["qwenimage-edit"] = map[string]string{Tokenizer: prompts + "/tokenizer"}
}

// editor is the golden pipeline that edits pictures, as one of its two classes.
func editor(t testing.TB, class string) string {
	dir := goldenPipeline(t, "qwenimage-edit")
	path := filepath.Join(dir, IndexFile)
	raw, err := os.ReadFile(path)
	require.NoError(t, err)
	var index map[string]any
	require.NoError(t, json.Unmarshal(raw, &index))
	delete(index, Processor) // as CLIP has it
	index["_class_name"] = class
	raw, err = json.Marshal(index)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(path, raw, 0o600))
	return dir
}

// shown are the pictures that the goldens were made with.
func shown(t testing.TB, names ...string) (all []image.Image) {
	for _, name := range names {
		raw, err := os.ReadFile(filepath.Join(prompts, "pictures", name+".png"))
		require.NoError(t, err)
		img, err := picture.Decode(raw)
		require.NoError(t, err)
		all = append(all, img)
	}
	return all
}

// TestEdit: texts with pictures are what diffusers makes of them; where pictures are scaled,
// up to what filters round otherwise than Pillow.
func TestEdit(t *testing.T) {
	raw, err := os.ReadFile(filepath.Join(prompts, "texts.json"))
	require.NoError(t, err)
	var texts []string
	require.NoError(t, json.Unmarshal(raw, &texts))
	f, err := safetensors.Open(filepath.Join(prompts, "qwenimage-edit", "golden.safetensors"))
	require.NoError(t, err)
	defer f.Close()
	check := func(e *Encoder, golden, text string, most float64, names ...string) {
		t.Helper()
		p, err := e.Encode(context.Background(), text, shown(t, names...)...)
		require.NoError(t, err)
		want, shape := values(t, f, golden)
		v, err := f.Lookup(golden + ".tokens")
		require.NoError(t, err)
		tokens, err := safetensors.As[int64](v)
		require.NoError(t, err)
		require.Equal(t, shape[1], p.Features)
		require.Len(t, p.Values, int(tokens[0])*p.Features, golden)
		half := shape[0] / 2 * p.Features
		got := append(append([]float32{}, p.Values[:half]...), p.Values[len(p.Values)-half:]...)
		for i := range want {
			require.InDelta(t, want[i], got[i], most, "%s: element %d", golden, i)
		}
	}
	e := encoderOf(t, editor(t, "QwenImageEditPipeline"))
	check(e, "edit.flat", texts[0], 1e-4, "flat")
	_, err = e.Encode(context.Background(), "x", shown(t, "flat", "drawn")...)
	require.ErrorIs(t, err, ErrPrompt)
	_, err = e.Encode(context.Background(), "x")
	require.ErrorIs(t, err, ErrPrompt)

	e = encoderOf(t, editor(t, "QwenImageEditPlusPipeline"))
	check(e, "plus.flat", texts[0], 1e-4, "flat")
	check(e, "plus.drawn", texts[0], 2e-2, "drawn")
	check(e, "plus.both", texts[1], 2e-2, "flat", "drawn")
	_, err = e.Encode(context.Background(), "x", shown(t, "flat", "flat", "flat", "flat", "flat", "flat", "flat")...)
	require.ErrorIs(t, err, ErrPrompt)

	e = encoderOf(t, goldenPipeline(t, "zimage"))
	_, err = e.Encode(context.Background(), "x", shown(t, "flat")...)
	require.ErrorIs(t, err, ErrPrompt)
}

// TestCacheOfEdits: captions are encoded along with what is edited, and so is the empty one.
func TestCacheOfEdits(t *testing.T) {
	a := newAlbum(t, "qwenimage-edit", "vae-qwen")
	for i := range a.samples {
		a.samples[i].Control = a.write(fmt.Sprintf("control %d.png", i), drawn(t, image.Pt(50+i, 40)))
	}
	o := CacheOptions{Side: 64}
	stats, err := a.build(o)
	require.NoError(t, err)
	require.Equal(t, cache.Stats{Entries: 12, Built: 12}, stats, "texts and empty ones, pictures, controls")
	stats, err = a.build(o)
	require.NoError(t, err)
	require.Zero(t, stats.Built)
	require.Zero(t, a.dev.compiled)
	require.NoError(t, os.WriteFile(a.samples[1].Control, drawn(t, image.Pt(20, 20)), 0o600))
	stats, err = a.build(o)
	require.NoError(t, err)
	require.Equal(t, 3, stats.Built, "two texts that see the control image, and its latent")
	for _, e := range a.entries(o) {
		require.NotEmpty(t, e.Control.Shape)
	}
}

// TestSizesOfEdits: pictures and controls of a cache keep all that they show, with sides as
// the pipeline that draws has them; other pipelines cut theirs to buckets, by another recipe.
func TestSizesOfEdits(t *testing.T) {
	a := newAlbum(t, "qwenimage-edit", "vae-qwen")
	a.samples = a.samples[:1]
	a.samples[0].Image = a.write("wide.png", drawn(t, image.Pt(150, 40)))
	a.samples[0].Control = a.write("control.png", drawn(t, image.Pt(150, 40)))
	o := CacheOptions{Side: 64}
	_, err := a.build(o)
	require.NoError(t, err)
	e := a.entries(o)[0]
	require.Equal(t, []int{4, 1, 32 / 4, 128 / 4}, e.Control.Shape, "124×33 pixels, rounded")
	require.Equal(t, e.Latent.Data, e.Control.Data)

	canvas, err := a.pipeline.Canvas(dit.Space{Channels: 4, Multiple: 2})
	require.NoError(t, err)
	m, err := ReadImage(a.samples[0].Control)
	require.NoError(t, err)
	c, err := a.pipeline.Controls(canvas, 64, m)
	require.NoError(t, err)
	require.NoError(t, canvas.Open(a.dev, vae.Options{}))
	defer canvas.Close()
	drawn, err := c.Latents(t.Context(), canvas)
	require.NoError(t, err)
	got, err := e.Control.Float32s()
	require.NoError(t, err)
	canvas.Normalise(dit.Latent{Channels: 4, Frames: 1, Height: 8, Width: 32, Values: got})
	require.Equal(t, drawn[0].Values, got, "what it is drawn from is what was learned of")

	whole, err := a.pipeline.CacheOptions(o)
	require.NoError(t, err)
	a.pipeline.Class = "QwenImagePipeline"
	cut, err := a.pipeline.CacheOptions(CacheOptions{Side: 64, Multiple: 32, PicturesOnly: true})
	require.NoError(t, err)
	require.NotEqual(t, whole.Image.Settings, cut.Image.Settings)
	stats, err := a.build(CacheOptions{Side: 64, Multiple: 32, PicturesOnly: true})
	require.NoError(t, err)
	require.Equal(t, 2, stats.Built)
}
