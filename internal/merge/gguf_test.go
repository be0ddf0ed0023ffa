package merge_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/internal/gguf"
	"github.com/lorafuse/lorafuse/internal/lora/dialects"
	"github.com/lorafuse/lorafuse/internal/merge"
	"github.com/lorafuse/lorafuse/internal/model"
	"github.com/lorafuse/lorafuse/internal/model/llamacpp"
	"github.com/lorafuse/lorafuse/internal/pretrained"
	"github.com/lorafuse/lorafuse/lora"
	"github.com/lorafuse/lorafuse/tokenizer"
)

const lms = "../../testdata/lm/"

// tiny is a tokenizer with fewer tokens than any model has embeddings.
const tiny = `{"version": "1.0", "added_tokens": [], "normalizer": null, "post_processor": null,
	"pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true},
	"decoder": {"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true},
	"model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2}, "merges": [["a", "b"]]}}`

// withTokenizer returns a copy of a model of testdata with a tokenizer.
func withTokenizer(t *testing.T, dir string) string {
	to := filepath.Join(t.TempDir(), "model")
	require.NoError(t, os.CopyFS(to, os.DirFS(dir)))
	path := filepath.Join(to, "tokenizer.json")
	if _, err := os.Stat(path); err != nil {
		require.NoError(t, os.WriteFile(path, []byte(tiny), 0o666))
	}
	return to
}

// A model that is written to GGUF and opened again has the same configuration, weights and tokens.
func TestGGUFRoundTrip(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	for _, dir := range []string{
		lms + "llama/model", lms + "qwen2/model", lms + "qwen3/model", lms + "gemma3/model", lms + "llama/rope-llama3", lms + "llama/rope-linear", lms + "llama/rope-yarn",
		"../../testdata/extra/llama-biases", "../../testdata/extra/llama-f16", "../../testdata/extra/mixtral", "../../testdata/extra/llama3-rope-tied",
		"../../testdata/extra/olmo2", "../../testdata/extra/mistral-no-window", "../../testdata/quant/fp8-block", "../../testdata/quant/fp8-channel",
	} {
		if _, err := os.Stat(filepath.Join(dir, "model.safetensors")); err != nil {
			continue
		}
		m, err := model.Open(withTokenizer(t, dir))
		require.NoError(t, err)
		path := filepath.Join(t.TempDir(), "model.gguf")
		_, err = merge.WriteGGUF(t.Context(), path, m, nil, nil, merge.GGUFOptions{Type: "f32"})
		require.NoError(t, err, dir)
		folder, err := llamacpp.Folder(path)
		require.NoError(t, err, dir)
		n, err := model.Open(folder)
		require.NoError(t, err, dir)
		for _, name := range n.Used() {
			want, err := m.Weight(name)
			require.NoError(t, err)
			got, err := n.Weight(name)
			require.NoError(t, err)
			a, err := want.Float32s()
			require.NoError(t, err)
			b, err := got.Float32s()
			require.NoError(t, err)
			require.InDeltaSlice(t, a, b, 1e-6, "%s: %s", dir, name)
		}
		if m.Config.Architecture == n.Config.Architecture && m.Config.MaxLength() == n.Config.MaxLength() { // without a window that shortens texts
			assert.Equal(t, m.Config.Family, n.Config.Family, dir)
		}
		assert.Equal(t, m.Config.TiedEmbeddings, n.Config.TiedEmbeddings)
		before, err := tokenizer.Load(m.Dir)
		require.NoError(t, err)
		after, err := tokenizer.Load(folder)
		require.NoError(t, err)
		require.NoError(t, after.CheckSame(before), dir)
		require.NoError(t, m.Close())
		require.NoError(t, n.Close())
	}
}

// A merge to GGUF has the merged values, in blocks where that is wanted.
func TestMergeGGUF(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	m, err := model.Open(lms + "llama/model")
	require.NoError(t, err)
	defer m.Close()
	a, p, err := pretrained.OpenAdapter(lms+"llama/adapters/lora", m, pretrained.Options{})
	require.NoError(t, err)
	dir := t.TempDir()
	folder := filepath.Join(dir, "folder")
	_, err = merge.Write(t.Context(), folder, m, a, p, merge.Options{})
	require.NoError(t, err)
	want, err := model.Open(folder)
	require.NoError(t, err)
	defer want.Close()
	for kind, most := range map[string]float64{"": 0, "f32": 0, "f16": 1e-3, "bf16": 1e-2, "q8_0": 2e-2, "q4_0": 0.3, "q4_k": 2e-2} {
		path := filepath.Join(dir, "m-"+kind+".gguf")
		r, err := merge.WriteGGUF(t.Context(), path, m, a, p, merge.GGUFOptions{Type: kind})
		require.NoError(t, err)
		assert.Equal(t, 4, r.Merged)
		folder, err := llamacpp.Folder(path)
		require.NoError(t, err)
		got, err := model.Open(folder)
		require.NoError(t, err)
		for _, name := range want.Used() {
			x, err := want.Weight(name)
			require.NoError(t, err)
			y, err := got.Weight(name)
			require.NoError(t, err)
			xs, err := x.Float32s()
			require.NoError(t, err)
			ys, err := y.Float32s()
			require.NoError(t, err)
			require.InDeltaSlice(t, xs, ys, most, "%s: %s", kind, name)
		}
		require.NoError(t, got.Close())
	}
	_, err = merge.WriteGGUF(t.Context(), filepath.Join(dir, "m-f32.gguf"), m, a, p, merge.GGUFOptions{})
	require.ErrorIs(t, err, os.ErrExist)
	_, err = merge.WriteGGUF(t.Context(), filepath.Join(dir, "x.gguf"), m, a, p, merge.GGUFOptions{Type: "q5_k"})
	require.ErrorIs(t, err, merge.ErrOptions)
}

// Models that llama.cpp does not compute are rejected by name.
func TestGGUFUnsupported(t *testing.T) {
	for dir, says := range map[string]string{
		"../../testdata/extra/gemma2":    "query_pre_attn_scalar: found 24",
		"../../testdata/extra/qwen3-moe": "mlp_only_layers, decoder_sparse_step",
		"../../testdata/encoders/bert":   `architecture "BertModel"`,
		"../../testdata/extra/glm4":      "partial_rotary_factor: found 3 rotated elements of a head",
		"../../testdata/extra/olmo3":     "rope_parameters.sliding_attention: found default, rope_theta 500000",
		// llama.cpp does not read the betas of yarn.
		"../../testdata/extra/yarn-untruncated":  "beta_fast, beta_slow: found 2, 0.2",
		"../../testdata/extra/ministral3-window": "rope_parameters: rope_type: found default",
		"../../testdata/extra/llama-gelu":        "hidden_act: found gelu_tanh",
		"../../testdata/extra/smollm3":           "no_rope_layers: found [true,true,false,true]",
	} {
		m, err := model.Open(dir)
		require.NoError(t, err)
		_, err = llamacpp.Describe(m)
		require.ErrorIs(t, err, llamacpp.ErrUnsupported, dir)
		require.ErrorContains(t, err, says)
		require.NoError(t, m.Close())
	}
}

// What llama.cpp computes differently is noted.
func TestGGUFNotes(t *testing.T) {
	for window, says := range map[string]string{"40": "context_length is 40 instead of 64; llama.cpp rotates texts of up to 16 tokens", "11": "context_length is 11 instead of 64"} {
		dir := withTokenizer(t, "../../testdata/extra/phi3")
		raw, err := os.ReadFile(filepath.Join(dir, "config.json"))
		require.NoError(t, err)
		text := strings.Replace(string(raw), `"sliding_window": 11`, `"sliding_window": `+window, 1)
		require.NoError(t, os.WriteFile(filepath.Join(dir, "config.json"), []byte(text), 0o666))
		m, err := model.Open(dir)
		require.NoError(t, err)
		var notes []string
		o := merge.GGUFOptions{Note: func(text string) { notes = append(notes, text) }}
		_, err = merge.WriteGGUF(t.Context(), filepath.Join(t.TempDir(), "m.gguf"), m, nil, nil, o)
		require.NoError(t, err)
		want := strings.Split(says, "; ")
		require.Len(t, notes, len(want))
		for i := range want {
			assert.Contains(t, notes[i], want[i])
		}
		require.NoError(t, m.Close())
	}
}

// An adapter of llama.cpp has the products of PEFT's; what it cannot hold is rejected by name.
func TestGGUFAdapter(t *testing.T) {
	m, err := model.Open(lms + "llama/model")
	require.NoError(t, err)
	defer m.Close()
	path := filepath.Join(t.TempDir(), "a.gguf")
	for name, says := range map[string]string{"lora": "", "patterns": "", "dora": "DoRA: model.layers.0.self_attn.q_proj", "saved_head": "modules_to_save: lm_head"} {
		a, p, err := pretrained.OpenAdapter(lms+"llama/adapters/"+name, m, pretrained.Options{})
		require.NoError(t, err)
		n, err := dialects.WriteGGUF(path, m, a, p)
		if says != "" {
			require.ErrorIs(t, err, lora.ErrUnsupported)
			require.ErrorContains(t, err, says)
			continue
		}
		require.NoError(t, err)
		assert.Equal(t, len(p.Targets), n)
		f, err := gguf.Open(path)
		require.NoError(t, err)
		alpha, err := f.Float("adapter.lora.alpha")
		require.NoError(t, err)
		for _, x := range p.Targets {
			if !strings.HasSuffix(x.Name, "layers.1.self_attn.v_proj") {
				continue
			}
			w, err := a.Weights(x)
			require.NoError(t, err)
			b, err := f.Tensor("blk.1.attn_v.weight.lora_b")
			require.NoError(t, err)
			assert.Equal(t, []int{x.Out, x.Rank}, b.Shape)
			got := make([]float32, b.Elements())
			require.NoError(t, f.Float32s(got, b, 0))
			for i, v := range w[lora.RoleB] {
				require.InDelta(t, float64(v)*x.Scale, float64(got[i])*alpha/float64(x.Rank), 1e-6)
			}
		}
		require.NoError(t, f.Close())
	}
}
