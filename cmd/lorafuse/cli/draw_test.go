package cli

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"image"
	"image/png"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/internal/diffusion"
	"github.com/lorafuse/lorafuse/safetensors"
)

const dits = goldens + "/dit"

// flux makes a pipeline of FLUX in the lab, without text encoders, and a file of an encoded
// prompt.
func (l *lab) flux() (dir, embedding string) {
	dir = l.path("flux")
	for part, from := range map[string]string{"transformer": "flux", "vae": "vae-flux", "scheduler": "sampling-flux"} {
		l.copy(filepath.Join(dits, from, part), filepath.Join("flux", part))
	}
	l.file("flux/model_index.json", `{"_class_name": "FluxPipeline",
		"transformer": ["diffusers", "FluxTransformer2DModel"], "vae": ["diffusers", "AutoencoderKL"],
		"scheduler": ["diffusers", "FlowMatchEulerDiscreteScheduler"],
		"text_encoder": ["transformers", "CLIPTextModel"], "text_encoder_2": ["transformers", "T5EncoderModel"],
		"tokenizer": ["transformers", "CLIPTokenizer"], "tokenizer_2": ["transformers", "T5TokenizerFast"]}`)
	f, err := safetensors.Open(filepath.Join(dits, "sampling-flux/golden.safetensors"))
	require.NoError(l.t, err)
	defer f.Close()
	read := func(name string) []float32 {
		v, err := f.Lookup(name)
		require.NoError(l.t, err)
		x, err := safetensors.As[float32](v)
		require.NoError(l.t, err)
		return x[:len(x)/2]
	}
	return dir, l.write("prompt.safetensors",
		floats("prompt_embeds", read("prompt_embeds"), 7, 32), floats("pooled_prompt_embeds", read("pooled_prompt_embeds"), 24))
}

// zimage makes a pipeline of Z-Image in the lab, without text encoders, and a file of an
// encoded prompt.
func (l *lab) zimage() (dir, embedding string) {
	for part, from := range map[string]string{"transformer": "zimage", "vae": "vae-flux"} {
		l.copy(filepath.Join(dits, from, part), filepath.Join("zimage", part))
	}
	return l.path("zimage"), l.write("caption.safetensors", floats("prompt_embeds", make([]float32, 3*20), 3, 20))
}

// Guidance that leads away from nothing, and a negative prompt without guidance, are noted.
func TestDrawNotesGuidance(t *testing.T) {
	l := newLab(t)
	dir, embedding := l.zimage()
	const missing, useless = "and there is none", "counts where --guidance is above 0"
	for _, c := range []struct {
		says string
		args []string
	}{
		{missing, nil},
		{"", []string{"--guidance", "0"}},
		{"", []string{"--negative-embedding", embedding}},
		{useless, []string{"--negative-embedding", embedding, "--guidance", "0"}},
	} {
		r := command(t, "", append([]string{"draw", "--model", dir, "--embedding", embedding, "--size", "8x8", "--steps", "1", "-o", l.path("x.png")}, c.args...)...)
		assert.Zero(t, r.status, r.stderr)
		if assert.Contains(t, r.stderr, c.says); c.says == "" {
			assert.NotContains(t, r.stderr, "without guidance")
		}
	}
}

func (l *lab) picture(path string) image.Image {
	f, err := os.Open(path)
	require.NoError(l.t, err)
	defer f.Close()
	m, err := png.Decode(f)
	require.NoError(l.t, err)
	return m
}

func TestDraw(t *testing.T) {
	l := newLab(t)
	dir, embedding := l.flux()
	draw := func(name string, args ...string) image.Image {
		path := l.path(name)
		succeed(t, append([]string{"draw", "--model", dir, "--embedding", embedding, "--size", "32x16", "--steps", "2", "-o", path}, args...)...)
		return l.picture(path)
	}
	one := draw("one.png", "--seed", "2")
	assert.Equal(t, image.Rect(0, 0, 32, 16), one.Bounds())
	assert.Equal(t, one, draw("again.png", "--seed", "2"))
	assert.NotEqual(t, one, draw("other.png", "--seed", "3"))
	assert.NotEqual(t, one, draw("told.png", "--seed", "2", "--guidance", "1"))

	// Rows are prompts, columns seeds, each of them without the adapter and with it.
	path := l.path("grid.png")
	out := succeed(t, "draw", "--model", dir, "--embedding", embedding, "--embedding", embedding, "--size", "32x16", "--steps", "2",
		"--seed", "1,2", "--adapter", filepath.Join(dits, "flux/train/final.safetensors"), "--before", "--json", "-o", path)
	var r drawn
	require.NoError(t, json.Unmarshal([]byte(out), &r))
	require.Len(t, r.Pictures, 8)
	assert.Equal(t, drawnPicture{Prompt: embedding, Seed: 2, Row: 1, Column: 2}, r.Pictures[6])
	assert.NotEmpty(t, r.Pictures[7].Adapter)
	assert.Equal(t, 4*32+3*4, r.Width)
	grid := l.picture(path).(interface {
		SubImage(image.Rectangle) image.Image
	})
	at := func(column int) image.Image { return moved(grid.SubImage(image.Rect(36*column, 0, 36*column+32, 16))) }
	assert.Equal(t, moved(one), at(2))
	assert.NotEqual(t, at(2), at(3), "the adapter does something")

	none := draw("none.png", "--seed", "2", "--adapter", filepath.Join(dits, "flux/train/final.safetensors"), "--adapter-weight", "0")
	assert.Equal(t, one, none, "an adapter of no weight does nothing")
}

// TestDrawLyCORIS: a LoHa or LoKr adapter, as a file and as a folder, changes the picture as merging
// it does.
func TestDrawLyCORIS(t *testing.T) {
	l := newLab(t)
	dir, embedding := l.zimage()
	draw := func(args ...string) *image.NRGBA {
		path := l.path("picture.png")
		succeed(t, append([]string{"draw", "--model", dir, "--embedding", embedding, "--size", "32x16", "--steps", "2", "--guidance", "0", "-o", path}, args...)...)
		return moved(l.picture(path))
	}
	largest := func(a, b *image.NRGBA) (d int) { // difference of two pictures
		require.Equal(t, a.Bounds(), b.Bounds())
		for i := range a.Pix {
			d = max(d, int(a.Pix[i])-int(b.Pix[i]), int(b.Pix[i])-int(a.Pix[i]))
		}
		return d
	}
	base := draw()
	for _, form := range []string{"loha", "lokr"} {
		file, transformer := filepath.Join(dits, "lycoris", form+"-lycoris.safetensors"), filepath.Join(dir, "transformer")
		succeed(t, "adapter", "convert", file, l.path(form), "--model", transformer, "--to", "peft")
		succeed(t, "merge", "--model", transformer, "--adapter", l.path(form), "--output", l.path(form+"-merged"))
		merged := draw("--transformer", l.path(form+"-merged/model.safetensors"))
		require.Greater(t, largest(base, merged), 8, "the adapter changes the picture")
		for _, adapter := range []string{file, l.path(form)} {
			require.LessOrEqual(t, largest(merged, draw("--adapter", adapter)), 1, adapter)
		}
	}
}

// moved is an image with its own pixels alone.
func moved(m image.Image) *image.NRGBA {
	b := m.Bounds()
	out := image.NewNRGBA(image.Rect(0, 0, b.Dx(), b.Dy()))
	for i := range b.Dx() * b.Dy() {
		out.Set(i%b.Dx(), i/b.Dx(), m.At(b.Min.X+i%b.Dx(), b.Min.Y+i/b.Dx()))
	}
	return out
}

func TestDrawBadInput(t *testing.T) {
	l := newLab(t)
	dir, embedding := l.flux()
	out := l.path("x.png")
	other := l.write("other.safetensors", floats("latent", []float32{1}, 1))
	narrow := l.write("narrow.safetensors", floats("prompt_embeds", make([]float32, 14), 7, 2))
	for _, c := range []struct {
		says string
		args []string
	}{
		{"nothing to draw", []string{"-o", out}},
		{"--output is missing", []string{"--embedding", embedding}},
		{`--size: found "32", expected width and height`, []string{"--embedding", embedding, "--size", "32", "-o", out}},
		{"multiples of 4, such as 32x16", []string{"--embedding", embedding, "--size", "33x15", "-o", out}},
		{"found 0, expected 1 to 1000", []string{"--embedding", embedding, "--steps", "0", "-o", out}},
		{"found 1001, expected 1 to 1000", []string{"--embedding", embedding, "--steps", "1001", "-o", out}},
		{"--guidance: found NaN", []string{"--embedding", embedding, "--guidance", "nan", "-o", out}},
		{"--seed: found none", []string{"--embedding", embedding, "--seed", "", "-o", out}},
		{"expected a name that ends in .png", []string{"--embedding", embedding, "-o", l.path("x.jpg")}},
		{"--vae-tile: wrong option: tiles of 3 pixels", []string{"--embedding", embedding, "--vae-tile", "3", "--size", "32x16", "-o", out}},
		{`--seed: found "x"`, []string{"--embedding", embedding, "--seed", "1,x", "-o", out}},
		{"--before goes with --adapter", []string{"--embedding", embedding, "--before", "-o", out}},
		{"other.safetensors has no tensor prompt_embeds", []string{"--embedding", other, "--size", "32x16", "-o", out}},
		{"found 2 features of a token, expected 32", []string{"--embedding", narrow, "--size", "32x16", "-o", out}},
		{"is told its guidance", []string{"--embedding", embedding, "--negative-embedding", embedding, "--size", "32x16", "-o", out}},
		{"lists text_encoder_2 as T5EncoderModel, and there is no folder", []string{"--prompt", "a", "--size", "32x16", "-o", out}},
		{"no such file", []string{"--embedding", embedding, "--size", "32x16", "--steps", "1", "-o", l.path("no/x.png")}},
		{"adapter", []string{"--embedding", embedding, "--size", "32x16", "--adapter", llamaLoRA, "-o", out}},
	} {
		r := command(t, "", append([]string{"draw", "--model", dir}, c.args...)...)
		assert.NotZero(t, r.status, c.says)
		assert.Contains(t, r.stderr, c.says)
		assert.NotContains(t, r.stderr, "internal error")
	}
	r := command(t, "", "draw", "--model", llama, "--embedding", embedding, "-o", out)
	assert.Equal(t, ExitUsage, r.status)
	assert.Contains(t, r.stderr, "neither model_index.json nor a folder called transformer")
}

// TestDrawnTexts: a file says how it was drawn, as other tools read it, in Latin-1 or not.
func TestDrawnTexts(t *testing.T) {
	l := newLab(t)
	dir, embedding := l.flux()
	path := l.path("x.png")
	draw := func(args ...string) map[string]string {
		succeed(t, append([]string{"draw", "--model", dir, "--embedding", embedding, "--size", "32x16", "--steps", "2", "-o", path}, args...)...)
		l.picture(path) // with checksums that are right
		return pngTexts(t, path)
	}
	texts := draw("--seed", "7,8", "--guidance", "2.5", "--adapter", filepath.Join(dits, "flux/train/final.safetensors"), "--adapter-weight", "0.5")
	assert.Regexp(t, `^prompt.safetensors\nSteps: 2, Sampler: Euler, CFG scale: 2.5, Seed: 7, Size: 32x16, Model: flux, Adapter: final.safetensors, Adapter weight: 0.5, Version: lorafuse `, texts["parameters"])
	var r recipe
	require.NoError(t, json.Unmarshal([]byte(texts["lorafuse"]), &r))
	assert.Equal(t, drawnPicture{Prompt: "prompt.safetensors", Seed: 8, Adapter: "final.safetensors", Column: 1}, r.Pictures[1])
	assert.NotContains(t, texts["lorafuse"], l.dir)
	first, err := os.ReadFile(path)
	require.NoError(t, err)
	draw("--seed", "7,8", "--guidance", "2.5", "--adapter", filepath.Join(dits, "flux/train/final.safetensors"), "--adapter-weight", "0.5")
	again, err := os.ReadFile(path)
	require.NoError(t, err)
	assert.Equal(t, first, again, "byte for byte")

	for _, prompt := range []string{"a café", "狐狸"} {
		r := drawn{recipe: recipe{Model: "a, b", Negative: "rain", Size: "32x16", Pictures: []drawnPicture{{Prompt: prompt}}}}
		require.NoError(t, diffusion.WritePNG(path, image.NewGray(image.Rect(0, 0, 1, 1)), r.texts()...))
		l.picture(path)
		assert.Regexp(t, "^"+prompt+"\nNegative prompt: rain\nSteps: 0, .* Model: \"a, b\", ", pngTexts(t, path)["parameters"])
	}
}

// pngTexts are the texts of a PNG file.
func pngTexts(t *testing.T, path string) map[string]string {
	raw, err := os.ReadFile(path)
	require.NoError(t, err)
	texts := map[string]string{}
	for at := 8; at < len(raw); {
		n, kind := int(binary.BigEndian.Uint32(raw[at:])), string(raw[at+4:at+8])
		key, value, _ := strings.Cut(string(raw[at+8:at+8+n]), "\x00")
		switch kind {
		case "tEXt":
			var runes []rune
			for _, b := range []byte(value) {
				runes = append(runes, rune(b))
			}
			texts[key] = string(runes)
		case "iTXt":
			texts[key] = strings.TrimLeft(value, "\x00")
		}
		at += 12 + n
	}
	return texts
}

// TestDrawInterrupted: a drawing that is stopped leaves the file that was there.
func TestDrawInterrupted(t *testing.T) {
	l := newLab(t)
	dir, embedding := l.flux()
	path := l.file("x.png", "what was there")
	ctx, stop := context.WithCancel(t.Context())
	time.AfterFunc(300*time.Millisecond, stop)
	var out, errs strings.Builder
	status := Run(ctx, []string{"draw", "--model", dir, "--embedding", embedding, "--size", "64x64", "--steps", "1000", "-o", path}, os.Stdin, &out, &errs)
	assert.Equal(t, ExitInterrupted, status)
	assert.Equal(t, "lorafuse: interrupted\n", errs.String())
	raw, err := os.ReadFile(path)
	require.NoError(t, err)
	assert.Equal(t, "what was there", string(raw))
	left, err := filepath.Glob(l.path(".*"))
	require.NoError(t, err)
	assert.Empty(t, left)
}
