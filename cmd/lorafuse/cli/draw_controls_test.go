package cli

import (
	"encoding/json"
	"fmt"
	"image"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/internal/diffusion"
)

const shots = "../../../internal/diffusion/testdata/prompts/pictures"

// editor makes a pipeline of Qwen-Image-Edit in the lab, of one of its two classes. Its
// transformer reads texts of as many features as the encoder gives.
func (l *lab) editor(class string) string {
	l.qwen("editor", class, "qwenimage-edit")
	l.setJSON(l.path("editor/transformer/config.json"), map[string]any{"joint_attention_dim": 16})
	l.narrow("editor/transformer", 16, "txt_in.weight", "txt_norm.weight")
	return l.path("editor")
}

// TestDrawControls: what is drawn depends on the pictures that it is drawn from, and has
// their shape.
func TestDrawControls(t *testing.T) {
	l := newLab(t)
	dir := l.editor("QwenImageEditPlusPipeline")
	l.file("landscape.png", string(photo(t, 80, 40)))
	flat, other, landscape := filepath.Join(shots, "flat.png"), filepath.Join(shots, "drawn.png"), l.path("landscape.png")
	draw := func(args ...string) image.Image {
		path := l.path("out.png")
		succeed(t, append([]string{"draw", "--model", dir, "-p", "make it rain", "--control-resolution", "64", "--steps", "2", "-o", path}, args...)...)
		return l.picture(path)
	}
	one := draw("--control", flat)
	assert.Equal(t, image.Rect(0, 0, 64, 64), one.Bounds())
	assert.NotEqual(t, one, draw("--control", other))
	assert.NotEqual(t, one, draw("--control", flat, "--control", other))
	assert.Equal(t, image.Rect(0, 0, 96, 32), draw("--control", landscape).Bounds(), "the shape of the control")
	assert.Equal(t, image.Rect(0, 0, 96, 32), draw("--control", flat, "--control", landscape).Bounds(), "that of the last")
	assert.Equal(t, image.Rect(0, 0, 32, 16), draw("--control", flat, "--size", "32x16").Bounds())
	assert.NotEqual(t, one, draw("--control", flat, "--negative", "sunshine"), "which is read along with the picture")
}

// photo is a PNG with something in it.
func photo(t *testing.T, width, height int) []byte {
	m := image.NewRGBA(image.Rect(0, 0, width, height))
	for i := range m.Pix {
		m.Pix[i] = uint8(i * i)
	}
	path := filepath.Join(t.TempDir(), "photo.png")
	require.NoError(t, diffusion.WritePNG(path, m))
	raw, err := os.ReadFile(path)
	require.NoError(t, err)
	return raw
}

// TestDrawKontext: FLUX draws from a picture and an encoded prompt.
func TestDrawKontext(t *testing.T) {
	l := newLab(t)
	dir, embedding := l.flux()
	l.setJSON(l.path("flux/model_index.json"), map[string]any{"_class_name": "FluxKontextPipeline"})
	draw := func(args ...string) image.Image {
		path := l.path("out.png")
		out := succeed(t, append([]string{"draw", "--model", dir, "--embedding", embedding, "--steps", "2", "--json", "-o", path}, args...)...)
		var r drawn
		require.NoError(t, json.Unmarshal([]byte(out), &r))
		return l.picture(path)
	}
	control := []string{"--control", filepath.Join(shots, "flat.png"), "--control-resolution", "32"}
	one := draw(control...)
	assert.Equal(t, image.Rect(0, 0, 32, 32), one.Bounds())
	assert.NotEqual(t, one, draw("--size", "32x32"))
	assert.NotEqual(t, one, draw("--control", filepath.Join(shots, "drawn.png"), "--control-resolution", "32"))
}

func TestDrawBadControls(t *testing.T) {
	l := newLab(t)
	dir := l.editor("QwenImageEditPipeline")
	plain, embedding := l.flux()
	l.copy(filepath.Join(dits, "zimage/transformer"), "zimage/transformer")
	l.copy(filepath.Join(dits, "vae-flux/vae"), "zimage/vae")
	out, flat := l.path("x.png"), filepath.Join(shots, "flat.png")
	low := l.file("low.png", string(photo(t, 80, 40)))
	text := l.file("text.png", "no picture")
	for _, c := range []struct {
		says string
		args []string
	}{
		{"draw: --control is missing: a QwenImageEditPipeline draws from pictures", []string{"-p", "rain"}},
		{"--control: diffusion: open " + l.path("none.png") + ": no such file", []string{"-p", "rain", "--control", l.path("none.png")}},
		{"text.png: picture: not a picture that can be read", []string{"-p", "rain", "--control", text}},
		{"is a directory", []string{"-p", "rain", "--control", dir}},
		{"2 pictures, expected 1 at most for a QwenImageEditPipeline", []string{"-p", "rain", "--control", flat, "--control", flat}},
		{"--control-resolution goes with --control", []string{"-p", "rain", "--control-resolution", "64"}},
		{"--control-resolution: found -1", []string{"-p", "rain", "--control", flat, "--control-resolution", "-1"}},
		{"an area of 7² pixels, expected 8² at least", []string{"-p", "rain", "--control", flat, "--control-resolution", "7"}},
		{"found 80×40 pixels, expected sides of 64 at least", []string{"--model", l.flux2(), "--embedding", embedding, "--control", low}},
		{"a pipeline of a ZImageTransformer2DModel takes no control image; expected Flux2KleinPipeline,",
			[]string{"--model", l.path("zimage"), "--embedding", embedding, "--control", flat}},
		{"a FluxPipeline takes no control image; expected Flux2KleinPipeline,", []string{"--model", plain, "--embedding", embedding, "--control", flat}},
	} {
		if c.args[0] != "--model" {
			c.args = append([]string{"--model", dir}, c.args...)
		}
		r := command(t, "", append([]string{"draw", "-o", out}, c.args...)...)
		assert.NotZero(t, r.status, c.says)
		assert.Contains(t, r.stderr, c.says)
		assert.NotContains(t, r.stderr, "internal error")
		assert.Regexp(t, "^[^\n]+\n", r.stderr)
	}
}

// flux2 makes a pipeline of FLUX.2 in the lab that works on pixels, without text encoders.
func (l *lab) flux2() string {
	l.copy(filepath.Join(dits, "flux2/transformer"), "flux2/transformer")
	l.copy(filepath.Join(dits, "vae-flux/vae"), "flux2/vae")
	l.file("flux2/model_index.json", `{"_class_name": "Flux2KleinPipeline",
		"transformer": ["diffusers", "Flux2Transformer2DModel"], "vae": ["diffusers", "AutoencoderKL"]}`)
	return l.path("flux2")
}

// TestTrainOfEdits: a cache of an editing model is built, an adapter learns of it, and is
// seen drawing from the control of the first picture, or from another one.
func TestTrainOfEdits(t *testing.T) {
	l := newLab(t)
	dir, pictures, cache := l.editor("QwenImageEditPlusPipeline"), l.pictures(), l.path("cache")
	l.file("low.png", string(photo(t, 80, 40)))
	succeed(t, "data", "cache", pictures, "--model", dir, "--cache", cache, "--control", l.path("originals"), "--resolution", "64")
	config := l.file("edits.yaml", fmt.Sprintf(`task: diffusion
model: %s
steps: 2
diffusion: {images: %s, controls: %s, cache: %s, sample_steps: 1}
sample_every: 2
adapter: {r: 2}
log: {plot: false}
`, dir, pictures, l.path("originals"), cache))
	runs := 0
	run := func(sets ...string) []string {
		runs++
		args := []string{"train", config, "--set", fmt.Sprintf("output_dir=%s%d", l.path("out"), runs)}
		for _, set := range sets {
			args = append(args, "--set", "diffusion."+set)
		}
		return args
	}
	train := func(sets ...string) image.Image {
		succeed(t, run(sets...)...)
		return l.picture(l.path(fmt.Sprintf("out%d/samples/step-000002.png", runs)))
	}
	cached := train()
	asked := train("sample_prompts=make it rain")
	assert.NotEqual(t, cached, asked)
	assert.Equal(t, cached.Bounds(), asked.Bounds())
	assert.Equal(t, image.Rect(0, 0, 2*96+4, 32), train("sample_prompts=make it rain", "sample_controls="+l.path("low.png")).Bounds())

	for says, sets := range map[string][]string{
		"diffusion.sample_controls: found 2 pictures for 1 of sample_prompts": {"sample_prompts=x", "sample_controls=[a.png, b.png]"},
		"diffusion.sample_controls: found no sample_prompts":                  {"sample_controls=a.png"},
		"diffusion.sample_controls: diffusion: open a.png: no such file":      {"sample_prompts=x", "sample_controls=a.png"},
	} {
		r := command(t, "", run(sets...)...)
		assert.NotZero(t, r.status, says)
		assert.Contains(t, r.stderr, says)
	}
}
