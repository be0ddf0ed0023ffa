package diffusion

import (
	"encoding/json"
	"image"
	"image/color"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/internal/data/picture"
	"github.com/lorafuse/lorafuse/internal/diffusion/dit"
)

// gradient is a picture that is redder to the right and greener downwards.
func gradient(w, h int) image.Image {
	m := image.NewRGBA(image.Rect(0, 0, w, h))
	for y := range h {
		for x := range w {
			m.SetRGBA(x, y, color.RGBA{uint8(x * 255 / (w - 1)), uint8(y * 255 / (h - 1)), 77, 255})
		}
	}
	return m
}

// editorOf is a pipeline of a class whose transformer is only named.
func editorOf(t *testing.T, class string) *Pipeline {
	dir := t.TempDir()
	name := map[string]string{"FluxKontextPipeline": "Flux", "Flux2KleinPipeline": "Flux2"}[class]
	if name == "" {
		name = "QwenImage"
	}
	path := filepath.Join(dir, "config.json")
	require.NoError(t, os.WriteFile(path, []byte(`{"_class_name": "`+name+`Transformer2DModel"}`), 0o600))
	return &Pipeline{Dir: dir, Class: class, Parts: map[string]Part{Transformer: {Dir: dir, There: true}}}
}

// TestControls: pictures are brought to the sizes that diffusers' pipelines bring them to,
// and so is what is drawn (scripts/make_control_goldens.py).
func TestControls(t *testing.T) {
	raw, err := os.ReadFile("testdata/controls.json")
	require.NoError(t, err)
	var cases []struct {
		Pipeline           string
		Pictures, Controls [][2]int
		Size               [2]int
		Pixels             [][][4]float64
	}
	require.NoError(t, json.Unmarshal(raw, &cases))
	canvas := &Canvas{Pixels: 8, Multiple: 16}
	for i, c := range cases {
		p := editorOf(t, c.Pipeline)
		f, err := p.fitting()
		require.NoError(t, err)
		var shown, fitted []picture.Size
		for k, s := range c.Pictures {
			size := picture.Size{Width: s[0], Height: s[1]}
			at, err := f.scale(size, defaultSide, canvas.Multiple)
			require.NoError(t, err)
			if f.cut != nil {
				at = f.cut(at, canvas.Multiple)
			}
			require.Equal(t, c.Controls[k], [2]int{at.Width, at.Height}, "%s of %v", c.Pipeline, size)
			shown, fitted = append(shown, size), append(fitted, at)
		}
		size := f.result(shown, fitted, defaultSide, canvas.Multiple)
		require.Equal(t, c.Size, [2]int{size.Width, size.Height}, "%s of %v", c.Pipeline, shown)
		if i%5 != 1 {
			continue
		}
		all, err := p.Controls(canvas, 0, gradient(shown[0].Width, shown[0].Height))
		require.NoError(t, err)
		got := picture.Signed(all.fitted[0])
		for _, x := range c.Pixels[0] {
			at := (int(x[0])*fitted[0].Height+int(x[1]))*fitted[0].Width + int(x[2])
			require.InDelta(t, x[3], got[at], 1.5/127.5, "%s of %v: %v", c.Pipeline, shown, x)
		}
	}
}

func TestControlsRefused(t *testing.T) {
	canvas := &Canvas{Pixels: 8, Multiple: 16}
	m := gradient(100, 70)
	for says, controls := range map[string]func() (*Controls, error){
		"2 pictures, expected 1 at most for a FluxKontextPipeline":   func() (*Controls, error) { return editorOf(t, "FluxKontextPipeline").Controls(canvas, 0, m, m) },
		"2 pictures, expected 1 at most for a QwenImageEditPipeline": func() (*Controls, error) { return editorOf(t, "QwenImageEditPipeline").Controls(canvas, 0, m, m) },
		"picture 2: found 63×80 pixels, expected sides of 64": func() (*Controls, error) {
			return editorOf(t, "Flux2KleinPipeline").Controls(canvas, 0, m, gradient(63, 80))
		},
		"one side to be 8 times the other at most": func() (*Controls, error) {
			return editorOf(t, "Flux2KleinPipeline").Controls(canvas, 0, gradient(64, 513))
		},
		"an area of 15² pixels, expected 16² at least": func() (*Controls, error) { return editorOf(t, "Flux2KleinPipeline").Controls(canvas, 15, m) },
		"a pipeline of a ZImageTransformer2DModel takes no control image": func() (*Controls, error) {
			p := editorOf(t, "ZImagePipeline")
			require.NoError(t, os.WriteFile(filepath.Join(p.Dir, "config.json"), []byte(`{"_class_name": "ZImageTransformer2DModel"}`), 0o600))
			return p.Controls(canvas, 0, m)
		},
	} {
		_, err := controls()
		require.ErrorIs(t, err, ErrControl)
		require.ErrorContains(t, err, says)
	}
	none, err := editorOf(t, "ZImagePipeline").Controls(canvas, 0)
	require.NoError(t, err)
	require.Nil(t, none)
}

// TestCheckControls: a pipeline takes control images by its own class, not by that of its
// transformer.
func TestCheckControls(t *testing.T) {
	for class, takes := range map[string]bool{
		"FluxPipeline": false, "FluxControlPipeline": false, "QwenImagePipeline": false, "ZImagePipeline": false, "Kandinsky5T2IPipeline": false,
		"FluxKontextPipeline": true, "Flux2Pipeline": true, "Flux2KleinPipeline": true, "QwenImageEditPipeline": true, "QwenImageEditPlusPipeline": true,
		"": true,
	} {
		err := (&Pipeline{Class: class}).CheckControls()
		if takes {
			require.NoError(t, err, class)
			continue
		}
		require.ErrorIs(t, err, ErrControl)
		require.ErrorContains(t, err, "a "+class+" takes no control image; expected")
		require.ErrorContains(t, err, "FluxKontextPipeline")
	}
}

// TestCanvasEncodes: what is encoded and painted again is the picture, where there is no
// autoencoder.
func TestCanvasEncodes(t *testing.T) {
	p := &Pipeline{Dir: "x", Parts: map[string]Part{Transformer: {There: true}}}
	c, err := p.Canvas(dit.Space{Channels: 12, Multiple: 2})
	require.NoError(t, err)
	all, err := editorOf(t, "FluxKontextPipeline").Controls(c, 32, gradient(40, 30))
	require.NoError(t, err)
	latents, err := all.Latents(t.Context(), c)
	require.NoError(t, err)
	require.Equal(t, 12, latents[0].Channels)
	painted, err := c.Paint(t.Context(), latents[0])
	require.NoError(t, err)
	require.Equal(t, picture.Signed(all.fitted[0]), painted.Values)
}
