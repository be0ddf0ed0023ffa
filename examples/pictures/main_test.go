package main

import (
	"context"
	"flag"
	"fmt"
	"image"
	"image/draw"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse"
	"github.com/lorafuse/lorafuse/internal/data/cache"
	"github.com/lorafuse/lorafuse/internal/diffusion"
	"github.com/lorafuse/lorafuse/internal/diffusion/dit"
	"github.com/lorafuse/lorafuse/safetensors"
	"github.com/lorafuse/lorafuse/tensor"
)

var (
	update = flag.Bool("update", false, "write images, captions and prompts again")
	base   = flag.Bool("base", false, "train the base model again")
)

// captions returns all pairs of a color and a shape.
func captions() (all []scene) {
	for i := range len(colours) * len(shapes) {
		all = append(all, scene{colour: i % len(colours), shape: i / len(colours)})
	}
	return all
}

// lamps returns the contents of the training images: four for each caption in a third of all.
func lamps() (all []scene) {
	for i, p := range captions() {
		if i%3 == p.shape%3 {
			for j := range 4 {
				all = append(all, p.place(4*i+j))
			}
		}
	}
	return all
}

// writePrompts writes a file for each encoded caption.
func writePrompts(t *testing.T, dir string) {
	for i, p := range captions() {
		e := encode(p.caption())
		require.NoError(t, safetensors.WriteFile(filepath.Join(dir, fmt.Sprintf("%02d-%s-%s.safetensors", i, colours[p.colour].name, shapes[p.shape].name)), []safetensors.Entry{
			{Name: "prompt_embeds", DType: safetensors.F32, Shape: []int{len(e.Values) / features, features}, Data: tensor.BytesOf(e.Values)},
			{Name: "pooled_prompt_embeds", DType: safetensors.F32, Shape: []int{features}, Data: tensor.BytesOf(e.Pooled)},
		}, nil))
	}
}

// writeCaptions writes a cache with the encoded captions of images.
func writeCaptions(t *testing.T, dir string, samples []cache.Sample) {
	c, err := cache.Open(dir, cache.Options{Text: cache.Recipe{Model: "examples/pictures"}})
	require.NoError(t, err)
	_, err = c.Build(t.Context(), samples, cache.Encoders{Text: text}, cache.BuildOptions{})
	require.NoError(t, err)
}

// The files that the program reads are those that the code here draws and encodes.
func TestFiles(t *testing.T) {
	dir := t.TempDir()
	if *update {
		dir = "."
		for _, name := range []string{"images", "captions", "prompts"} {
			require.NoError(t, os.RemoveAll(name))
		}
	}
	for _, name := range []string{"images", "captions", "prompts"} {
		require.NoError(t, os.MkdirAll(filepath.Join(dir, name), 0o777))
	}
	samples, err := write(filepath.Join(dir, "images"), lamps(), glow)
	require.NoError(t, err)
	writeCaptions(t, filepath.Join(dir, "captions"), samples)
	writePrompts(t, filepath.Join(dir, "prompts"))
	for _, pattern := range []string{"images/*", "captions/text_embs/*", "prompts/*"} {
		here, err := filepath.Glob(pattern)
		require.NoError(t, err)
		made, err := filepath.Glob(filepath.Join(dir, pattern))
		require.NoError(t, err)
		require.Equal(t, len(made), len(here), pattern)
		for i, name := range here {
			require.Equal(t, filepath.Base(made[i]), filepath.Base(name))
			require.Equal(t, content(t, made[i]), content(t, name), name)
		}
	}
}

// content returns the pixels of a PNG, the tensors of a safetensors file, or the bytes of
// another.
func content(t *testing.T, path string) any {
	switch filepath.Ext(path) {
	case ".png":
		m, err := diffusion.ReadImage(path)
		require.NoError(t, err)
		return pixels(m)
	case ".safetensors":
		p, err := diffusion.ReadPrompt(path)
		require.NoError(t, err)
		return p
	}
	raw, err := os.ReadFile(path)
	require.NoError(t, err)
	return raw
}

// Before training nothing glows; afterwards everything does, and has the color and the shape
// of its caption, with few exceptions.
func TestProgram(t *testing.T) {
	if os.Getenv("LORAFUSE_LONG") == "" {
		t.Skip("trains 1200 steps; LORAFUSE_LONG is not set")
	}
	t.Chdir("../..")
	main()
	known, n := templates(), len(captions())
	assert.Equal(t, score{drawn: n, glowing: 0, colour: n, shape: n}, judge(drawn(t, "before"), captions(), known))
	after := judge(drawn(t, "after"), captions(), known)
	t.Logf("%+v", after)
	assert.Equal(t, score{drawn: n, glowing: n, colour: n, shape: after.shape}, after)
	assert.GreaterOrEqual(t, after.shape, 41)
}

// drawn returns the images of a grid that the program has written.
func drawn(t *testing.T, name string) (all []image.Image) {
	grid, err := diffusion.ReadImage("examples/pictures/output/" + name + ".png")
	require.NoError(t, err)
	for i := range captions() {
		m := image.NewNRGBA(image.Rect(0, 0, side, side))
		draw.Draw(m, m.Bounds(), grid, image.Pt(i%6*side, i/6*side), draw.Src)
		all = append(all, m)
	}
	return all
}

// TestBase trains the model again, from random weights and on images of plain shapes.
func TestBase(t *testing.T) {
	if !*base {
		t.Skip("replaces the model; -base is not given")
	}
	t.Chdir("../..")
	const perCaption, dir, model = 16, "examples/pictures/output/base", "examples/pictures/model"
	require.NoError(t, os.RemoveAll(dir))
	var all []scene
	for i := range perCaption * len(captions()) {
		all = append(all, captions()[i%len(captions())].place(i))
	}
	samples, err := write(dir+"/images", all, plain)
	require.NoError(t, err)
	writeCaptions(t, dir+"/cache", samples)
	require.NoError(t, begin(dir+"/model"))
	recipe, err := lorafuse.ReadRecipe("examples/pictures/base.yaml")
	require.NoError(t, err)
	tuned, err := lorafuse.FineTune(context.Background(), "", lorafuse.Images(dir+"/images"), recipe)
	require.NoError(t, err)
	require.NoError(t, os.RemoveAll(model))
	require.NoError(t, finish(dir+"/model", tuned.Adapter, model))
}

// What the code here draws is judged right, in both styles and wherever it lies.
func TestJudge(t *testing.T) {
	known := templates()
	for _, in := range []struct {
		style   style
		glowing int
	}{{plain, 0}, {glow, len(captions())}} {
		var drawn []image.Image
		var asked []scene
		for i, p := range captions() {
			p = p.place(i)
			drawn, asked = append(drawn, p.paint(in.style)), append(asked, p)
		}
		n := len(drawn)
		assert.Equal(t, score{drawn: n, glowing: in.glowing, colour: n, shape: n}, judge(drawn, asked, known))
	}
}

func TestPixels(t *testing.T) {
	m := scene{shape: 1, x: side / 2, y: side / 2, size: 10}.paint(func(float64, [3]float64) [3]float64 { return [3]float64{1, 0, 0.5} })
	x := pixels(m)
	assert.Equal(t, dit.Latent{Channels: 3, Frames: 1, Height: side, Width: side, Values: x.Values}, x)
	assert.InDelta(t, 1, x.Values[0], 1e-6)
	assert.InDelta(t, -1, x.Values[side*side], 1e-6)
	assert.InDelta(t, 0, x.Values[2*side*side], 0.01)
}
