package model_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/dev/testdevice"
	"github.com/lorafuse/lorafuse/graph"
	"github.com/lorafuse/lorafuse/internal/data"
	"github.com/lorafuse/lorafuse/internal/engine"
	"github.com/lorafuse/lorafuse/internal/generate"
	"github.com/lorafuse/lorafuse/internal/host"
	"github.com/lorafuse/lorafuse/internal/model"
	"github.com/lorafuse/lorafuse/internal/nn"
	"github.com/lorafuse/lorafuse/lora"
	"github.com/lorafuse/lorafuse/safetensors"
	"github.com/lorafuse/lorafuse/tensor"
)

// ditGoldens has models of diffusion pipelines, textGoldens forms of them that those lack.
const (
	ditGoldens  = "../../testdata/dit"
	textGoldens = "../../testdata/text"
)

// texts is a model that reads texts for others, and what PyTorch has computed with it.
func texts(t *testing.T, dir string) (*model.Model, *safetensors.File, *generate.Scorer) {
	m, f, _, s := golden{dir: dir, file: filepath.Join(dir, "golden.safetensors")}.open(t, testdevice.Open(t, backend.Options{}))
	return m, f, s
}

// last is the state behind the final norm of all tokens of rows.
func last(t *testing.T, s *generate.Scorer, rows [][]int32) []float32 {
	t.Helper()
	hidden, err := s.Hidden(context.Background(), rows)
	require.NoError(t, err)
	return hidden[len(hidden)-1]
}

// seen leaves out what a mask hides: of rows, which end in it, and of their states.
func seen(t *testing.T, rows, mask [][]int32, states []float32) (cut [][]int32, want []float32) {
	size := len(states) / (len(rows) * len(rows[0]))
	for i, row := range rows {
		n := 0
		for n < len(row) && mask[i][n] == 1 {
			n++
		}
		cut = append(cut, row[:n])
		from := i * len(row) * size
		want = append(want, states[from:from+n*size]...)
	}
	require.Less(t, len(want), len(states), "nothing is masked")
	return cut, want
}

// TestT5: padding is seen where there is no mask, and is not there where there is one.
func TestT5(t *testing.T) {
	_, f, s := texts(t, filepath.Join(ditGoldens, "t5"))
	rows := intRows(t, f, "input_ids")
	requireClose(t, "without a mask", last(t, s, rows), floats(t, f, "prompt_embeds"))
	rows, want := seen(t, rows, intRows(t, f, "attention_mask"), floats(t, f, "prompt_embeds_masked"))
	requireClose(t, "with a mask", last(t, s, rows), want)
}

// TestT5ReLU: the first T5, with other kinds of distances and texts that are longer than
// the farthest, in bf16.
func TestT5ReLU(t *testing.T) {
	m, f, s := texts(t, filepath.Join(textGoldens, "t5-relu"))
	w, err := m.Weight("encoder.block.0.layer.1.DenseReluDense.wi.weight")
	require.NoError(t, err)
	require.Equal(t, tensor.BF16, w.DType)
	checkHidden(t, s, intRows(t, f, "input_ids"), f)
}

// TestCLIP: states, and the pooled one at the end of the text, which is the largest id
// where config.json has the old one, and else the first of its kind.
func TestCLIP(t *testing.T) {
	for _, dir := range []string{filepath.Join(ditGoldens, "clip"), filepath.Join(textGoldens, "clip-projection")} {
		m, f, s := texts(t, dir)
		rows := intRows(t, f, "input_ids")
		requireClose(t, "last hidden state", last(t, s, rows), floats(t, f, "last_hidden_state"))
		requireClose(t, "pooled", pooled(t, m, rows), floats(t, f, "pooler_output"))
	}
}

// pooled is the output model.Pooler of each row.
func pooled(t *testing.T, m *model.Model, rows [][]int32) []float32 {
	t.Helper()
	r := host.Open(testdevice.Open(t, backend.Options{}), m)
	defer r.Close()
	slot, err := r.NewSlot(nil)
	require.NoError(t, err)
	defer slot.Free()
	var b data.Batch
	var at []int32
	for _, ids := range rows {
		at = append(at, int32(len(b.Tokens())+m.Config.Family.(model.Pooling).PoolAt(ids)))
		b.Add(ids, nil)
	}
	b.SetInts(nn.ReadToken, at)
	results, err := r.Compute(context.Background(), slot, engine.Spec{
		Name:   "pooled",
		Bounds: map[string]int{nn.Tokens: len(b.Tokens()), nn.Documents: len(rows)},
		Build: func(b *nn.Builder, p *graph.Program) {
			p.Result("pooled", m.Build(b).Output(b, model.Pooler).Gather(b.Input(nn.ReadToken, tensor.I32, b.Axis(nn.Documents))))
		},
	}, &b, b.Longest())
	require.NoError(t, err)
	out, err := results.Get(context.Background(), "pooled")
	require.NoError(t, err)
	return out
}

// TestQwenVL: the part that reads text, in the forms that config.json has had.
func TestQwenVL(t *testing.T) {
	_, f, s := texts(t, filepath.Join(ditGoldens, "qwen2_5_vl"))
	rows, want := seen(t, intRows(t, f, "input_ids"), intRows(t, f, "attention_mask"), floats(t, f, "hidden_states"))
	requireClose(t, "hidden states", last(t, s, rows), want)

	tied := filepath.Join(textGoldens, "qwen2_5_vl-tied")
	for _, dir := range []string{tied, respelled(t, tied, filepath.Join(tied, "config.flat.json"))} {
		m, f, s := texts(t, dir)
		require.True(t, m.Config.TiedEmbeddings)
		checkHidden(t, s, intRows(t, f, "input_ids"), f)
	}
}

// TestTextAdapters: adapters of PEFT find their modules in models that read texts.
func TestTextAdapters(t *testing.T) {
	for _, name := range []string{"t5-relu", "clip-projection", "qwen2_5_vl-tied"} {
		dir := filepath.Join(textGoldens, name)
		m, f, _ := texts(t, dir)
		state, err := lora.LoadState(filepath.Join(dir, "adapter"), m, m.Config.ModelType, m.Modules())
		require.NoError(t, err)
		rows := intRows(t, f, "input_ids")
		s, err := generate.NewScorer(testdevice.Open(t, backend.Options{}), m, state, len(rows)*len(rows[0]))
		require.NoError(t, err)
		requireClose(t, name, last(t, s, rows), floats(t, f, "adapter.last"))
		s.Close()
	}
}

// TestTextNames: modules are called as transformers calls them, however files do.
func TestTextNames(t *testing.T) {
	for _, c := range []struct {
		dir  string
		part model.Part
		want string
	}{
		{filepath.Join(ditGoldens, "t5"), model.AsSaved, "encoder.block.1.layer.0.SelfAttention.q"},
		{filepath.Join(textGoldens, "t5-relu"), model.AsSaved, "encoder.block.2.layer.1.DenseReluDense.wi"},
		{filepath.Join(ditGoldens, "clip"), model.AsSaved, "encoder.layers.1.self_attn.out_proj"},
		{filepath.Join(textGoldens, "clip-projection"), model.AsSaved, "text_model.encoder.layers.1.mlp.fc1"},
		{filepath.Join(textGoldens, "clip-projection"), model.AsSaved, "text_projection"},
		{filepath.Join(ditGoldens, "qwen2_5_vl"), model.AsSaved, "model.language_model.layers.1.self_attn.q_proj"},
		{filepath.Join(ditGoldens, "qwen2_5_vl"), model.AsSaved, "lm_head"},
		{filepath.Join(ditGoldens, "qwen2_5_vl"), model.Body, "language_model.layers.1.mlp.down_proj"},
	} {
		m, err := model.OpenAs(c.dir, c.part)
		require.NoError(t, err)
		require.True(t, slices.ContainsFunc(m.Modules(), func(m nn.Module) bool { return m.Name == c.want }), "%s: %s", c.dir, c.want)
		require.NoError(t, m.Close())
	}
	// Files whose names have prefixes that those above lack, or lack those that they have.
	for dir, rename := range map[string]func(string) string{
		filepath.Join(ditGoldens, "clip"):             func(name string) string { return "text_model." + name },
		filepath.Join(textGoldens, "qwen2_5_vl-tied"): func(name string) string { return "model.language_model." + name[len("model."):] },
	} {
		to := respelled(t, dir, filepath.Join(dir, "config.json"))
		renamed(t, filepath.Join(to, safetensors.ModelFile), rename)
		m, err := model.Open(to)
		require.NoError(t, err)
		require.NoError(t, m.Close())
	}
}

// renamed gives the tensors of a file other names, but for those that are no part of
// what reads text.
func renamed(t *testing.T, path string, name func(string) string) {
	f, err := safetensors.Open(path)
	require.NoError(t, err)
	var entries []safetensors.Entry
	for _, old := range f.Names() {
		v, err := f.Lookup(old)
		require.NoError(t, err)
		if len(old) > 6 && old[:6] == "visual" {
			continue
		}
		entries = append(entries, safetensors.Entry{Name: name(old), DType: v.DType, Shape: v.Shape, Data: slices.Clone(v.Bytes())})
	}
	require.NoError(t, f.Close())
	require.NoError(t, safetensors.WriteFile(path, entries, nil))
}

// TestTextErrors: what config.json asks for and is not built is refused by name.
func TestTextErrors(t *testing.T) {
	for _, c := range []struct {
		dir, key string
		value    any
		kind     error
		says     string
	}{
		{"t5", "feed_forward_proj", "gated-mish", model.ErrUnsupported, `feed_forward_proj "gated-mish"`},
		{"t5", "is_decoder", true, model.ErrUnsupported, `is_decoder "true"`},
		{"t5", "relative_attention_num_buckets", 3, model.ErrConfig, "relative_attention_num_buckets: found 3"},
		{"t5", "relative_attention_max_distance", 8, model.ErrConfig, "relative_attention_max_distance: found 8"},
		{"t5", "layer_norm_epsilon", 0, model.ErrConfig, "layer_norm_epsilon: found 0"},
		{"t5", "d_model", nil, model.ErrConfig, "d_model: found nothing, expected an integer"},
		{"t5", "num_layers", 1 << 20, model.ErrConfig, "num_layers: found 1048576"},
		{"t5", "d_kv", 0, model.ErrConfig, "d_kv: found 0"},
		{"clip", "hidden_act", "mish", model.ErrUnsupported, `hidden_act "mish"`},
		{"clip", "num_attention_heads", 5, model.ErrConfig, "hidden_size 32 is not a multiple of num_attention_heads 5"},
		{"clip", "layer_norm_eps", 0, model.ErrConfig, "layer_norm_eps: found 0"},
		{"qwen2_5_vl", "text_config", 7, model.ErrConfig, "text_config: found 7, expected an object"},
		{"qwen2_5_vl", "text_config", map[string]any{"num_hidden_layers": "2"}, model.ErrConfig, `text_config: bad config.json: num_hidden_layers: found "2"`},
		{"qwen2_5_vl", "vision_config", map[string]any{"num_heads": 5}, model.ErrConfig, "vision_config: bad config.json: hidden_size 3584 is not a multiple"},
		{"qwen2_5_vl", "vision_config", map[string]any{"window_size": 4}, model.ErrConfig, "window_size: found 4, expected 28 or more"},
		{"qwen2_5_vl", "vision_config", map[string]any{"out_hidden_size": 64}, model.ErrConfig, "out_hidden_size: found 64, expected the hidden_size of texts, 32"},
	} {
		raw, err := os.ReadFile(filepath.Join(ditGoldens, c.dir, "config.json"))
		require.NoError(t, err)
		_, err = model.ParseConfig(changed(t, raw, map[string]any{c.key: c.value}))
		require.ErrorIs(t, err, c.kind, c.says)
		require.ErrorContains(t, err, c.says)
	}
}

func ExamplePooling() {
	m, err := model.Open("../../testdata/dit/clip")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer m.Close()
	// The end of the text is its largest id, here and behind it as padding.
	fmt.Println(m.Config.Family.(model.Pooling).PoolAt([]int32{62, 5, 9, 63, 63, 63}))
	// Output: 3
}
