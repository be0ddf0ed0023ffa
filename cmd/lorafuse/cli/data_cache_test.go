package cli

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/safetensors"
)

// captioner makes a pipeline of Qwen-Image in the lab, with all that captions and images
// are encoded with.
func (l *lab) captioner() string {
	l.qwen("pipeline", "QwenImagePipeline", "qwenimage")
	return l.path("pipeline")
}

// qwen makes a pipeline of a class of Qwen-Image in the lab, of the parts for a model.
func (l *lab) qwen(dir, class, model string) {
	const prompts = "../../../internal/diffusion/testdata/prompts"
	l.copy(filepath.Join(prompts, model, "text_encoder"), dir+"/text_encoder")
	l.copy(filepath.Join(prompts, "tokenizer"), dir+"/tokenizer")
	l.copy(filepath.Join(dits, "vae-qwen/vae"), dir+"/vae")
	l.copy(filepath.Join(dits, model, "transformer"), dir+"/transformer")
	l.file(dir+"/model_index.json", `{"_class_name": "`+class+`",
		"transformer": ["diffusers", "QwenImageTransformer2DModel"], "vae": ["diffusers", "AutoencoderKLQwenImage"],
		"text_encoder": ["transformers", "Qwen2_5_VLForConditionalGeneration"], "tokenizer": ["transformers", "Qwen2Tokenizer"]}`)
}

// narrow cuts tensors of a transformer in the lab to fewer numbers in their last axis.
func (l *lab) narrow(dir string, features int, names ...string) {
	l.tensors(l.path(dir+"/diffusion_pytorch_model.safetensors"), func(e *safetensors.Entry) bool {
		if last := len(e.Shape) - 1; slices.Contains(names, e.Name) {
			var cut []byte
			for row := range slices.Chunk(e.Data, 4*e.Shape[last]) {
				cut = append(cut, row[:4*features]...)
			}
			e.Shape[last], e.Data = features, cut
		}
		return true
	})
}

func TestDataCache(t *testing.T) {
	l := newLab(t)
	dir, model, cache := l.pictures(), l.captioner(), l.path("cache")
	run := func(args ...string) built {
		return decode[built](t, succeed(t, append([]string{"data", "cache", dir, "--model", model, "--cache", cache, "--resolution", "48", "--json"}, args...)...))
	}
	require.Equal(t, built{cache, 5, 5, nil, nil}, run())
	require.Equal(t, built{cache, 5, 0, nil, nil}, run())
	out := succeed(t, "data", "validate", dir, "--cache", cache)
	require.Contains(t, out, "cache     3 texts, 2 images, 0 control images; 0 not built yet, 0 without a key")
	l.file("pictures/a.txt", "another picture of a")
	require.Equal(t, built{cache, 5, 1, nil, nil}, run())
	require.Equal(t, built{cache, 2, 2, nil, nil}, run("--only", "pictures", "--latents", "sample"))
	require.Equal(t, built{cache, 4, 2, nil, nil}, run("--only", "pictures", "--latents", "sample", "--control", l.path("originals")))
	out = succeed(t, "data", "cache", dir, "--model", model, "--cache", cache, "--only", "text")
	require.Equal(t, "3 entries in "+cache+", 0 of them made now\n", out)
}

// TestTruncatedTexts: captions and prompts that are too long are counted and shown, on stderr
// and as JSON.
func TestTruncatedTexts(t *testing.T) {
	l := newLab(t)
	dir, model := l.pictures(), l.captioner()
	long := strings.Repeat("one two three ", 700) + "with a zebra"
	l.file("pictures/a.txt", long)
	r := command(t, "", "data", "cache", dir, "--model", model, "--cache", l.path("cache"), "--only", "text", "--json")
	require.Zero(t, r.status, r.stderr)
	b := decode[built](t, r.stdout)
	require.Len(t, b.Truncated, 1)
	require.Equal(t, 1, b.Truncated[0].Captions)
	require.Equal(t, long, b.Truncated[0].Caption)
	require.Equal(t, 1058, b.Truncated[0].MaxTokens)
	require.True(t, strings.HasSuffix(b.Truncated[0].Text, "with a zebra"))
	require.Contains(t, r.stderr, "captions longer than text_encoder reads: 1; first: \"one two three")

	l.setJSON(l.path("pipeline/transformer/config.json"), map[string]any{"joint_attention_dim": 16})
	l.narrow("pipeline/transformer", 16, "txt_in.weight", "txt_norm.weight")
	r = command(t, "", "draw", "--model", model, "-p", long, "--size", "16x16", "--steps", "1", "--guidance", "1", "--json", "-o", l.path("x.png"))
	require.Zero(t, r.status, r.stderr)
	d := decode[drawn](t, r.stdout)
	require.Len(t, d.Truncated, 1)
	require.Equal(t, long, d.Truncated[0].Prompt)
	require.True(t, strings.HasSuffix(d.Truncated[0].Text, "with a zebra"))
	require.Contains(t, r.stderr, "note     --prompt \"one two three")
	require.Contains(t, r.stderr, "to 1058 tokens for text_encoder; cut off: \"")
}

func TestDataCacheErrors(t *testing.T) {
	l := newLab(t)
	dir, model, cache := l.pictures(), l.captioner(), l.path("cache")
	all := []string{"data", "cache", dir, "--model", model, "--cache", cache, "--resolution", "48"}
	for says, args := range map[string][]string{
		"--model is missing":                        {"data", "cache", dir, "--cache", cache},
		"--cache is missing":                        {"data", "cache", dir, "--model", model},
		"--workers: found -1":                       append(all, "--workers", "-1"),
		"--resolution: found 0, expected 1 or more": append(all[:len(all)-1:len(all)-1], "0"),
		"--tile: found -1, expected 0 or more":      append(all, "--tile", "-1"),
		"--seed goes with --latents sample":         append(all, "--seed", "3"),
		"expected text or pictures":                 append(all, "--only", "texts"),
		"multiples of 5, expected":                  append(all, "--multiple", "5"),
		"buckets of 3×3 pixels":                     append(all[:len(all)-1:len(all)-1], "3"),
		"tiles of 3 pixels":                         append(all, "--tile", "3"),
		"neither model_index.json nor":              {"data", "cache", dir, "--model", dir, "--cache", cache},
		"no such file or directory":                 {"data", "cache", l.path("none"), "--model", model, "--cache", cache},
	} {
		r := command(t, "", args...)
		require.NotEqual(t, ExitOK, r.status, says)
		require.Contains(t, r.stderr, says)
		require.Equal(t, 1, strings.Count(r.stderr, "\n"), r.stderr)
	}
	l.file("pictures/lone.txt", "nothing to see")
	r := command(t, "", all...)
	require.Equal(t, "lorafuse: data cache: "+filepath.Join(dir, "lone.txt")+": orphan caption: expected an image lone.png, .jpg, .jpeg or .webp\n", r.stderr)
	l.remove(filepath.Join(dir, "lone.txt"))
	l.file("pipeline/model_index.json", `{"_class_name": "Flux2Pipeline", "transformer": ["diffusers", "QwenImageTransformer2DModel"]}`)
	r = command(t, "", all...)
	require.Contains(t, r.stderr, "Flux2Pipeline lists the transformer as QwenImageTransformer2DModel, expected Flux2Transformer2DModel")
	l.file("pipeline/model_index.json", `{"_class_name": "Flux2Pipeline", "transformer": ["diffusers", "Flux2Transformer2DModel"]}`)
	r = command(t, "", all...)
	require.Contains(t, r.stderr, "config.json is a QwenImageTransformer2DModel")
	l.file("pipeline/transformer/config.json", `{"_class_name": "Flux2Transformer2DModel"}`)
	r = command(t, "", all...)
	require.Contains(t, r.stderr, "its text encoder, Mistral3, is not supported")
}

// TestDataCacheSkipBad: all files that cannot be used are reported, with damaged pixels among them. Without
// --skip-bad nothing is written, and with it the others are encoded, and trained on with diffusion.skip_bad.
func TestDataCacheSkipBad(t *testing.T) {
	l := newLab(t)
	dir, model, cache := l.pictures(), l.captioner(), l.path("cache")
	whole := picture(t)
	at := strings.Index(whole, "IDAT") + 12 // the pixels; the structure of the file stays whole
	l.file("pictures/pixels.png", whole[:at]+strings.Repeat("\xff", 8)+whole[at+8:])
	l.file("pictures/pixels.txt", "damaged pixels")
	l.file("pictures/short.png", whole[:len(whole)-20])
	l.file("pictures/short.txt", "a truncated file")
	l.file("pictures/page.png", "<html>")
	l.file("pictures/page.txt", "a page")
	l.file("pictures/mute.png", whole)
	l.file("pictures/latin.png", whole)
	l.file("pictures/latin.txt", "caf\xe9")
	l.file("pictures/lone.txt", "nothing to see")
	all := []string{"data", "cache", dir, "--model", model, "--cache", cache, "--resolution", "48"}
	reasons := []string{
		"mute.png: missing caption: expected mute.txt", "lone.txt: orphan caption: expected an image",
		"latin.txt: bad caption: byte 4: found 0xe9", "page.png: bad image: the file begins with \"<htm\"",
		"pixels.png: bad image: not a picture that can be read: png: ", "short.png: bad image: the file is cut short",
	}
	r := command(t, "", all...)
	require.Equal(t, ExitUsage, r.status)
	for _, reason := range reasons {
		require.Contains(t, r.stderr, reason)
	}
	require.Contains(t, r.stderr, dir+": nothing was encoded: found 6 problems, and 2 images of 7 that can be used, which --skip-bad encodes\n")
	require.NoDirExists(t, cache)

	r = command(t, "", append(all, "--skip-bad", "--json")...)
	require.Zero(t, r.status, r.stderr)
	require.Contains(t, r.stderr, "note: 5 images of 7 left out\n")
	b := decode[built](t, r.stdout)
	require.Equal(t, []int{5, 5, 6}, []int{b.Entries, b.Built, len(b.Skipped)})
	for i, reason := range reasons {
		require.Contains(t, r.stderr, reason)
		require.Contains(t, b.Skipped[i].String(), reason)
	}
	for _, name := range []string{"a", "b"} {
		l.remove(filepath.Join(dir, name+".png"))
	}
	r = command(t, "", append(all, "--skip-bad")...)
	require.Equal(t, ExitUsage, r.status)
	require.Contains(t, r.stderr, "0 images of 5 that can be used")
}
