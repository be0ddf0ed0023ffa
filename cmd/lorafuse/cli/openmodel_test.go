package cli

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/internal/model"
	"github.com/lorafuse/lorafuse/safetensors"
)

// usageError runs a command that must fail and returns its error.
func usageError(t *testing.T, args ...string) string {
	t.Helper()
	r := command(t, "", args...)
	require.Equal(t, ExitUsage, r.status, r.stderr)
	return r.stderr
}

// widen adds tensors to a model of the lab.
func (l *lab) widen(name string, more ...safetensors.Entry) {
	file := filepath.Join(name, "model.safetensors")
	l.tensors(l.path(file), func(e *safetensors.Entry) bool { more = append(more, *e); return true })
	l.write(file, more...)
}

// TestUnreadTensors: commands say once which tensors they do not read, and refuse a bias
// that the architecture drops.
func TestUnreadTensors(t *testing.T) {
	l := newLab(t)
	m := l.model()
	l.widen("model", floats("model.layers.0.self_attn.rotary_emb.inv_freq", []float32{1}, 1), floats("extra", []float32{1}, 1))
	const says = ": 2 tensors of the checkpoint are not read: extra; model.layers.0.self_attn.rotary_emb.inv_freq (rotary frequencies are computed from config.json)\n"
	r := command(t, "", "compare", "--model", m, "--golden", llamaGolden)
	require.Equal(t, ExitOK, r.status, r.stderr)
	assert.Equal(t, 1, strings.Count(r.stderr, "note     "+m+says), r.stderr)
	r = command(t, "", "train", l.settings(m, ""))
	require.Equal(t, ExitOK, r.status, r.stderr)
	assert.Equal(t, 1, strings.Count(r.stderr, says), r.stderr)

	l.widen("model", floats("model.layers.0.self_attn.q_proj.bias", []float32{0, 1}, 2))
	for _, args := range [][]string{{"compare", "--golden", llamaGolden}, {"generate", "--prompt", "x"}, {"embed"}, {"eval", "--data", l.path("train.jsonl")}, {"serve", "--listen", "127.0.0.1:0"}} {
		assert.Contains(t, usageError(t, append(args, "--model", m)...), `"model.layers.0.self_attn.q_proj.bias" is a bias that no layer of LlamaForCausalLM has`, args[0])
	}
}

// TestAdapterAsModel: an adapter in the place of a model is called one, with its base model.
func TestAdapterAsModel(t *testing.T) {
	l := newLab(t)
	a := l.adapter()
	l.setJSON(filepath.Join(a, "adapter_config.json"), map[string]any{"base_model_name_or_path": "acme/base"})
	for _, args := range [][]string{{"compare", "--golden", llamaGolden}, {"generate", "--prompt", "x"}, {"serve", "--listen", "127.0.0.1:0"}, {"draw", "--prompt", "x", "-o", l.path("x.png")}, {"embed"}} {
		assert.Contains(t, usageError(t, append(args, "--model", a)...), `folder is an adapter, expected a model; its base model is "acme/base"`, args[0])
	}
}

// TestMistypedFolder: a name without owner is not looked for on the Hub.
func TestMistypedFolder(t *testing.T) {
	t.Setenv("HF_ENDPOINT", "http://127.0.0.1:1")
	t.Setenv("HF_HUB_CACHE", t.TempDir())
	t.Chdir(t.TempDir())
	require.NoError(t, os.Mkdir("llama-tiny", 0o777))
	for _, command := range [][]string{{"generate", "--prompt", "x"}, {"draw", "--prompt", "x", "-o", "x.png"}, {"tokenize", "x"}, {"serve", "--listen", "127.0.0.1:0"}} {
		assert.Contains(t, usageError(t, append(command, "--model", "lama-tiny")...), `there is no folder "lama-tiny", did you mean "llama-tiny"?; a model on the Hub is owner/name`, command[0])
	}
}

// TestUnsupportedPipelines: what draws is answered with what draws.
func TestUnsupportedPipelines(t *testing.T) {
	l := newLab(t)
	_, embedding := l.flux()
	for class, config := range map[string]string{"SD3Transformer2DModel": "transformer", "AutoencoderDC": "vae"} {
		l.setJSON(l.path("flux/"+config+"/config.json"), map[string]any{"_class_name": class})
		l.remove(l.path("flux/model_index.json"))
		says := usageError(t, "draw", "--model", l.path("flux"), "--embedding", embedding, "-o", l.path("x.png"))
		l.flux()
		assert.Contains(t, says, `architecture "`+class+`"`)
		assert.NotContains(t, says, "ForCausalLM")
		assert.NotContains(t, says, "BertModel")
		assert.Equal(t, config == "vae", strings.Contains(says, "AutoencoderKL"), says)
		assert.Equal(t, config != "vae", strings.Contains(says, "FluxTransformer2DModel"), says)
	}
	for _, head := range []string{"Phi3ForCausalLM", "NomicBertModel"} {
		m := l.copy(llama, head)
		l.setJSON(filepath.Join(m, "config.json"), map[string]any{"architectures": []string{head}})
		says := usageError(t, "generate", "--model", m, "--prompt", "x")
		assert.NotContains(t, says, "Transformer2DModel")
		assert.NotContains(t, says, "Autoencoder")
	}
}

// TestSkippedParts: for each class of multimodal models, commands name once the parts besides the text
// model. transformers gives these parts the names below.
func TestSkippedParts(t *testing.T) {
	parts := map[string][]string{"gemma4-whole": {"vision_tower", "embed_vision", "audio_tower", "embed_audio"}}
	for _, name := range []string{"gemma3-whole", "mistral3", "llava", "llava-next", "aya-vision"} {
		parts[name] = []string{"vision_tower", "multi_modal_projector"}
	}
	for _, name := range []string{"qwen2-vl", "qwen2-5-vl", "qwen3-vl", "qwen3-vl-moe"} {
		parts[name] = []string{"visual"}
	}
	missing := slices.DeleteFunc(model.Architectures(), func(class string) bool { return !strings.HasSuffix(class, "ForConditionalGeneration") })
	for name, parts := range parts {
		l := newLab(t)
		fixture := filepath.Join(goldens, "extra", name)
		m := l.copy(fixture, "model")
		var more []safetensors.Entry
		for _, part := range parts {
			more = append(more, floats("model."+part+".added.weight", []float32{1}, 1))
		}
		l.widen("model", more...)
		vision, audio := 1, strings.Count(strings.Join(parts, " "), "audio_tower")
		says := func(text string) {
			t.Helper()
			assert.Equal(t, vision, strings.Count(text, "(vision tower)"), "%s: %s", name, text)
			assert.Equal(t, audio, strings.Count(text, "(audio tower)"), "%s: %s", name, text)
		}
		r := command(t, "", "inspect", m)
		require.Equal(t, ExitOK, r.status, r.stderr)
		says(r.stdout)
		says(command(t, "", "compare", "--model", m, "--golden", filepath.Join(fixture, "golden.safetensors")).stderr)

		c, err := model.ReadConfig(m)
		require.NoError(t, err)
		missing = slices.DeleteFunc(missing, func(class string) bool { return class == c.Architecture })
	}
	require.Empty(t, missing, "classes without a case")
}
