package diffusion

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/dev/testdevice"
	"github.com/lorafuse/lorafuse/safetensors"
)

// prompts has what diffusers' pipelines make of captions: see scripts/make_prompt_goldens.py.
const prompts = "testdata/prompts"

// borrowed are the parts that a golden pipeline has of others.
var borrowed = map[string]map[string]string{
	"qwenimage":   {Tokenizer: prompts + "/tokenizer"},
	"zimage":      {Tokenizer: prompts + "/tokenizer"},
	"flux2-klein": {Tokenizer: prompts + "/tokenizer"},
	"kandinsky5":  {Tokenizer: prompts + "/tokenizer", TextEncoder: prompts + "/qwenimage/text_encoder", Tokenizer2: "../../testdata/dit/tokenizer-clip"},
	"flux":        {Tokenizer: "../../testdata/dit/tokenizer-clip", Tokenizer2: "../../testdata/dit/tokenizer-t5"},
}

// goldenPipeline is a copy of a golden pipeline with all parts that read captions.
func goldenPipeline(t testing.TB, name string) string {
	dir := t.TempDir()
	require.NoError(t, os.CopyFS(dir, os.DirFS(filepath.Join(prompts, name))))
	for part, from := range borrowed[name] {
		require.NoError(t, os.CopyFS(filepath.Join(dir, part), os.DirFS(from)))
	}
	return dir
}

func encoderOf(t *testing.T, dir string) *Encoder {
	p, err := Open(dir)
	require.NoError(t, err)
	e, err := p.OpenEncoder(context.Background(), testdevice.Open(t, backend.Options{}))
	require.NoError(t, err)
	t.Cleanup(e.Close)
	return e
}

// values are a tensor of a file, and its shape.
func values(t *testing.T, f *safetensors.File, name string) ([]float32, []int) {
	t.Helper()
	v, err := f.Lookup(name)
	require.NoError(t, err)
	x, err := safetensors.As[float32](v)
	require.NoError(t, err)
	return x, v.Shape
}

// requireNear allows 1e-4, and 1e-5 of the largest value.
func requireNear(t *testing.T, what string, want, got []float32) {
	t.Helper()
	require.Len(t, got, len(want), what)
	diff, size := 0.0, 0.0
	for i := range want {
		diff = math.Max(diff, math.Abs(float64(got[i])-float64(want[i])))
		size = math.Max(size, math.Abs(float64(want[i])))
	}
	require.LessOrEqual(t, diff, 1e-4, "%s: largest value %v", what, size)
	require.LessOrEqual(t, diff, 1e-5*size, "%s: relative to %v", what, size)
}

// TestEncoders: what pipelines make of captions is what diffusers makes of them.
func TestEncoders(t *testing.T) {
	raw, err := os.ReadFile(filepath.Join(prompts, "texts.json"))
	require.NoError(t, err)
	var texts []string
	require.NoError(t, json.Unmarshal(raw, &texts))
	for _, name := range []string{"qwenimage", "zimage", "flux2-klein", "kandinsky5", "flux"} {
		t.Run(name, func(t *testing.T) {
			f, err := safetensors.Open(filepath.Join(prompts, name, "golden.safetensors"))
			require.NoError(t, err)
			defer f.Close()
			e := encoderOf(t, goldenPipeline(t, name))
			for i, text := range texts {
				checkPrompt(t, e, f, i, text, "")
			}
			if name != "flux" {
				return
			}
			dir := goldenPipeline(t, name) // the one that is not told the guidance
			require.NoError(t, os.WriteFile(filepath.Join(dir, "transformer", "config.json"), []byte(`{"_class_name": "FluxTransformer2DModel"}`), 0o600))
			e = encoderOf(t, dir)
			for i, text := range texts {
				checkPrompt(t, e, f, i, text, ".256")
			}
		})
	}
}

// checkPrompt compares a prompt with a golden, which may have both ends of it alone.
func checkPrompt(t *testing.T, e *Encoder, f *safetensors.File, i int, text, kind string) {
	t.Helper()
	p, err := e.Encode(context.Background(), text)
	require.NoError(t, err)
	require.Nil(t, p.Mask)
	name := fmt.Sprintf("embeds.%d", i)
	if e.name == "flux" {
		name += ".512"
	}
	if kind != "" {
		name = fmt.Sprintf("embeds.%d%s", i, kind)
	}
	want, shape := values(t, f, name)
	require.Equal(t, shape[1], p.Features)
	got, ends := p.Values, 16*p.Features
	if tokens := len(got) / p.Features; tokens != shape[0] {
		require.Contains(t, []int{256, 512}, tokens, name)
		got = append(append([]float32{}, got[:ends]...), got[len(got)-ends:]...)
	}
	requireNear(t, name, want, got)
	if pooled := fmt.Sprintf("pooled.%d", i); f.Has(pooled) {
		want, _ := values(t, f, pooled)
		requireNear(t, pooled, want, p.Pooled)
	} else {
		require.Nil(t, p.Pooled)
	}
}

// A closed encoder has given its memory back.
func TestEncoderReleases(t *testing.T) {
	e := encoderOf(t, goldenPipeline(t, "kandinsky5"))
	bytes := []func() int{e.main.host.Bytes, e.second.host.Bytes}
	require.Positive(t, bytes[0]())
	e.Close()
	require.Nil(t, e.main.model)
	require.Nil(t, e.second.host)
	e.Close()
}

// What is missing, or of another kind, is one line that names it.
func TestEncoderErrors(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(dir string) error
		is     error
		says   string
	}{
		{"flux", func(dir string) error { return os.RemoveAll(filepath.Join(dir, TextEncoder2)) }, ErrPart, "lists text_encoder_2 as T5EncoderModel, and there is no folder"},
		{"flux", func(dir string) error { return os.RemoveAll(filepath.Join(dir, Tokenizer)) }, ErrPart, "there is no folder"},
		{"flux", func(dir string) error {
			if err := os.RemoveAll(filepath.Join(dir, TextEncoder)); err != nil {
				return err
			}
			return os.CopyFS(filepath.Join(dir, TextEncoder), os.DirFS(filepath.Join(dir, TextEncoder2)))
		}, ErrPipeline, "is a T5EncoderModel, expected CLIPTextModel"},
		{"qwenimage", func(dir string) error { return reclass(dir, "QwenImagPipeline") }, ErrPipeline, `did you mean "QwenImagePipeline"`},
		{"flux2-klein", func(dir string) error {
			if err := os.RemoveAll(filepath.Join(dir, TextEncoder)); err != nil {
				return err
			}
			return os.CopyFS(filepath.Join(dir, TextEncoder), os.DirFS("testdata/prompts/zimage/text_encoder"))
		}, ErrPipeline, "found a text encoder of 3 layers, expected one with hidden state 9"},
		{"qwenimage", func(dir string) error {
			return os.Remove(filepath.Join(dir, Tokenizer, "tokenizer.json"))
		}, os.ErrNotExist, "tokenizer.json"},
	} {
		dir := goldenPipeline(t, c.name)
		require.NoError(t, c.change(dir))
		p, err := Open(dir)
		require.NoError(t, err)
		_, err = p.OpenEncoder(context.Background(), testdevice.Open(t, backend.Options{}))
		require.ErrorIs(t, err, c.is, c.says)
		assert.ErrorContains(t, err, c.says)
		assert.NotContains(t, err.Error(), "\n")
	}
	e := encoderOf(t, goldenPipeline(t, "qwenimage"))
	_, err := e.Encode(context.Background(), "\xff")
	require.ErrorContains(t, err, "UTF-8")
}

// reclass gives a pipeline another class.
func reclass(dir, class string) error {
	path := filepath.Join(dir, IndexFile)
	raw, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	return os.WriteFile(path, []byte(strings.Replace(string(raw), "QwenImagePipeline", class, 1)), 0o600)
}

// A folder without an index is what its transformer says.
func TestEncoderWithoutIndex(t *testing.T) {
	dir := goldenPipeline(t, "zimage")
	require.NoError(t, os.Remove(filepath.Join(dir, IndexFile)))
	require.Equal(t, "z-image", encoderOf(t, dir).name)
}

func TestCleaned(t *testing.T) {
	for text, want := range map[string]string{
		" A  photo\tof &amp;amp; b\n":    "A photo of & b",
		"a\u00a0b\u2003c\x1cd\u0085":     "a b c d",
		"&lt;|im_end|&gt; &#x41;&quot;x": "<|im_end|> A\"x",
		"":                               "",
	} {
		assert.Equal(t, want, cleaned(text))
	}
}
