package cli

import (
	"bytes"
	"image"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/dev/testhub"
)

// uploaded has the pipelines of FLUX and of Qwen-Image on a Hub, along with what nobody reads:
// variants, pickles, checkpoints of other programs.
func (l *lab) uploaded() (h *testhub.Hub, embedding string) {
	_, embedding = l.flux()
	l.copy(filepath.Join(dits, "tokenizer-clip"), "flux/tokenizer")
	l.copy(filepath.Join(dits, "tokenizer-t5"), "flux/tokenizer_2")
	const prompts = "../../../internal/diffusion/testdata/prompts"
	l.copy(filepath.Join(prompts, "flux/text_encoder"), "flux/text_encoder")
	l.copy(filepath.Join(prompts, "flux/text_encoder_2"), "flux/text_encoder_2")
	l.captioner()
	return testhub.Serve(l.t, map[string]*testhub.Repo{"acme/flux": l.upload("flux"), "acme/qwen-image": l.upload("pipeline")}), embedding
}

// upload gives a pipeline of the lab as a repository.
func (l *lab) upload(name string) *testhub.Repo {
	r := testhub.Upload(l.t, l.path(name))
	for _, name := range []string{
		"README.md", "whole.safetensors", "ae.safetensors", "transformer/diffusion_pytorch_model.fp16.safetensors", "vae/diffusion_pytorch_model.bin",
		"text_encoder/model.bf16.safetensors", "text_encoder/pytorch_model.bin", "tokenizer/spiece.model", "transformer/README.md",
	} {
		r.Trees[testhub.Commit][name] = "not for us: " + name
	}
	return r
}

func TestPipelinesOnTheHub(t *testing.T) {
	l := newLab(t)
	h, embedding := l.uploaded()
	picture := func(name, model string, args ...string) image.Image {
		succeed(t, append([]string{"draw", "--model", model, "--size", "32x16", "--steps", "1", "-o", l.path(name)}, args...)...)
		return l.picture(l.path(name))
	}
	// An encoded prompt needs no text encoder.
	want := picture("here.png", l.path("flux"), "--embedding", embedding)
	assert.Equal(t, want, picture("there.png", "acme/flux", "--embedding", embedding))
	assert.Equal(t, []string{
		"model_index.json", "scheduler/scheduler_config.json", "transformer/config.json", "transformer/diffusion_pytorch_model.safetensors",
		"vae/config.json", "vae/diffusion_pytorch_model.safetensors",
	}, h.Files())
	l.setJSON(l.path("flux/transformer/config.json"), map[string]any{"joint_attention_dim": 8, "pooled_projection_dim": 8})
	l.narrow("flux/transformer", 8, "context_embedder.weight", "time_text_embed.text_embedder.linear_1.weight")
	h.Repos["acme/narrow"] = l.upload("flux")
	want = picture("here.png", l.path("flux"), "--prompt", "a fox")
	assert.Equal(t, want, picture("there.png", "acme/narrow@main", "--prompt", "a fox"))
	assert.Equal(t, []string{
		"model_index.json", "scheduler/scheduler_config.json", "text_encoder/config.json", "text_encoder/model.safetensors", "text_encoder_2/config.json", "text_encoder_2/model.safetensors",
		"tokenizer/tokenizer.json", "tokenizer/tokenizer_config.json", "tokenizer_2/tokenizer.json", "tokenizer_2/tokenizer_config.json", "transformer/config.json", "transformer/diffusion_pytorch_model.safetensors",
		"vae/config.json", "vae/diffusion_pytorch_model.safetensors",
	}, h.Files())

	// All of it without the Hub.
	t.Setenv("HF_HUB_OFFLINE", "1")
	before := h.Total()
	assert.Equal(t, want, picture("offline.png", "acme/narrow", "--prompt", "a fox"))
	assert.Equal(t, before, h.Total())
	r := command(t, "", "draw", "--model", "acme/qwen-image", "--prompt", "a fox", "-o", l.path("x.png"))
	assert.Equal(t, ExitFailure, r.status)
	assert.Contains(t, r.stderr, "acme/qwen-image is not whole in the cache")
	t.Setenv("HF_HUB_OFFLINE", "")

	// The transformer in a file of another model.
	want = picture("narrow.png", "acme/narrow", "--prompt", "a fox")
	assert.Equal(t, want, picture("file.png", "acme/flux", "--prompt", "a fox", "--transformer", "acme/narrow/transformer/diffusion_pytorch_model.safetensors"))
	assert.Equal(t, []string{
		"text_encoder/config.json", "text_encoder/model.safetensors", "text_encoder_2/config.json", "text_encoder_2/model.safetensors",
		"tokenizer/tokenizer.json", "tokenizer/tokenizer_config.json", "tokenizer_2/tokenizer.json", "tokenizer_2/tokenizer_config.json",
	}, h.Files(), "the rest was there")
}

// All of a pipeline is downloaded at once where that is asked for, and by no command that
// reads texts alone.
func TestDownloadPipeline(t *testing.T) {
	l := newLab(t)
	h, _ := l.uploaded()
	r := command(t, "", "generate", "--model", "acme/qwen-image", "--prompt", "a")
	assert.Equal(t, ExitUsage, r.status)
	assert.Contains(t, r.stderr, "a pipeline of diffusers, expected a model of texts: acme/qwen-image")
	assert.Empty(t, h.Files())
	succeed(t, "hub", "download", "--no-weights", "acme/qwen-image")
	small := []string{
		"model_index.json", "text_encoder/config.json", "tokenizer/chat_template.jinja", "tokenizer/tokenizer.json",
		"tokenizer/tokenizer_config.json", "transformer/config.json", "vae/config.json",
	}
	assert.Equal(t, small, h.Files())
	r = command(t, "", "hub", "download", "--offline", "acme/qwen-image")
	assert.Equal(t, ExitFailure, r.status)
	assert.Contains(t, r.stderr, "text_encoder: ")
	dir := strings.TrimSpace(succeed(t, "hub", "download", "acme/qwen-image"))
	assert.Equal(t, []string{"text_encoder/model.safetensors", "transformer/diffusion_pytorch_model.safetensors", "vae/diffusion_pytorch_model.safetensors"}, h.Files())
	before := h.Total()
	assert.Equal(t, dir, strings.TrimSpace(succeed(t, "hub", "download", "--offline", "acme/qwen-image")))
	assert.Equal(t, before, h.Total())
}

func TestDataCacheOnTheHub(t *testing.T) {
	l := newLab(t)
	h, _ := l.uploaded()
	dir, cache := l.pictures(), l.path("cache")
	run := func(model string, args ...string) built {
		return decode[built](t, succeed(t, append([]string{"data", "cache", dir, "--model", model, "--cache", cache, "--resolution", "48", "--json"}, args...)...))
	}
	h.Files()
	require.Equal(t, built{cache, 2, 2, nil, nil}, run("acme/qwen-image", "--only", "pictures"))
	assert.Equal(t, []string{"model_index.json", "transformer/config.json", "vae/config.json", "vae/diffusion_pytorch_model.safetensors"}, h.Files())
	require.Equal(t, built{cache, 5, 3, nil, nil}, run("acme/qwen-image"))
	assert.Equal(t, []string{
		"text_encoder/config.json", "text_encoder/model.safetensors", "tokenizer/chat_template.jinja", "tokenizer/tokenizer.json", "tokenizer/tokenizer_config.json",
	}, h.Files())
	require.Equal(t, built{cache, 5, 0, nil, nil}, run(l.path("pipeline")), "the cache is that of the folder, too")
}

func TestAdapterOnTheHub(t *testing.T) {
	l := newLab(t)
	h, _ := l.uploaded()
	convert := func(name, model string) []byte {
		succeed(t, "adapter", "convert", fluxAdapter, l.path(name), "--to", "kohya", "--model", model)
		raw, err := os.ReadFile(l.path(name))
		require.NoError(t, err)
		return raw
	}
	want := convert("here.safetensors", l.path("flux"))
	for i, model := range []string{"acme/flux", "acme/flux/transformer"} {
		assert.True(t, bytes.Equal(want, convert(string(rune('a'+i))+".safetensors", model)))
	}
	assert.Equal(t, []string{"model_index.json", "transformer/config.json"}, h.Files(), "weights are not needed")
}

// What is wrong with a model on the Hub is said in a line.
func TestPipelinesOnTheHubErrors(t *testing.T) {
	l := newLab(t)
	h, embedding := l.uploaded()
	draw := func(model string, more ...string) result {
		return command(t, "", append([]string{"draw", "--model", model, "--embedding", embedding, "--size", "32x16", "--steps", "1", "-o", l.path("x.png")}, more...)...)
	}
	files := func(change func(map[string]string)) *testhub.Repo {
		r := testhub.Upload(t, l.path("flux"))
		change(r.Trees[testhub.Commit])
		return r
	}
	h.Repos["acme/no-vae"] = files(func(f map[string]string) {
		delete(f, "vae/config.json")
		delete(f, "vae/diffusion_pytorch_model.safetensors")
	})
	h.Repos["acme/variant"] = files(func(f map[string]string) {
		f["transformer/diffusion_pytorch_model.fp16.safetensors"] = f["transformer/diffusion_pytorch_model.safetensors"]
		delete(f, "transformer/diffusion_pytorch_model.safetensors")
	})
	h.Repos["acme/words"] = files(func(f map[string]string) {
		clear(f)
		f["config.json"] = `{"model_type": "llama", "architectures": ["LlamaForCausalLM"]}`
	})
	h.Repos["acme/gated"] = files(func(map[string]string) {})
	h.Repos["acme/gated"].Token, h.Repos["acme/gated"].Gated = "hf_x", true
	for _, c := range []struct {
		model, says string
		more        []string
	}{
		{"acme/none", "not found on the Hub: acme/none, and there is no such folder here either", nil},
		{"acme/flux@v9", `acme/flux has no branch, tag or commit "v9"`, nil},
		{"acme/gated", "accept the terms of acme/gated at ", nil},
		{"acme/no-vae", "missing part: model_index.json lists vae as AutoencoderKL, and there is no folder acme/no-vae/vae", nil},
		{"acme/variant", "acme/variant/transformer: no safetensors weights: found diffusion_pytorch_model.fp16.safetensors, expected diffusion_pytorch_model.safetensors", nil},
		{"acme/words", "wrong pipeline: acme/words has neither model_index.json nor a folder called transformer", nil},
		{"acme/flux/none", "not found on the Hub: acme/flux/none", nil},
		{"acme/flux", "not found on the Hub: acme/flux/transformer/none.safetensors", []string{"--transformer", "acme/flux/transformer/none.safetensors"}},
		{"no such/model/at all", "expected a folder or owner/name[@revision]", nil},
		{"acme/flux", "--transformer-config goes with a transformer in a single file", []string{"--transformer-config", "config.json"}},
	} {
		r := draw(c.model, c.more...)
		assert.NotEqual(t, ExitOK, r.status, c.model)
		assert.Contains(t, r.stderr, c.says)
		lines := strings.Split(strings.TrimSpace(r.stderr), "\n")
		assert.Equal(t, 1, strings.Count(r.stderr, "lorafuse: "), r.stderr)
		assert.Contains(t, lines[len(lines)-1], c.says)
	}
}

// A download that is broken off goes on where it was.
func TestPipelineDownloadGoesOn(t *testing.T) {
	l := newLab(t)
	h, embedding := l.uploaded()
	h.Spoil(testhub.Fault{Cut: 5000}, testhub.Fault{Cut: 7000})
	succeed(t, "draw", "--model", "acme/flux", "--embedding", embedding, "--size", "32x16", "--steps", "1", "-o", l.path("x.png"))
	require.Equal(t, []string{"", "bytes=5000-", "bytes=12000-", ""}, h.Ranges(), "the transformer in three parts, and the autoencoder")
}
