package model_test

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/internal/model"
	"github.com/lorafuse/lorafuse/internal/weights"
	"github.com/lorafuse/lorafuse/safetensors"
	"github.com/lorafuse/lorafuse/tensor"
)

// widened is a copy of a model whose checkpoint has more tensors: f32 vectors, and copies of
// others of it.
func widened(t *testing.T, dir string, config map[string]any, vectors map[string][]float32, copies map[string]string) string {
	t.Helper()
	to := reconfigured(t, dir, config)
	set, err := weights.OpenModel(dir)
	require.NoError(t, err)
	defer set.Close()
	var all []safetensors.Entry
	add := func(name string, v *safetensors.View) {
		all = append(all, safetensors.Entry{Name: name, DType: v.DType, Shape: v.Shape, Data: v.Bytes()})
	}
	for _, name := range set.Names() {
		v, err := set.Lookup(name)
		require.NoError(t, err)
		add(name, v)
	}
	for name, x := range vectors {
		all = append(all, safetensors.Entry{Name: name, DType: safetensors.F32, Shape: []int{len(x)}, Data: tensor.BytesOf(x)})
	}
	for name, from := range copies {
		v, err := set.Lookup(from)
		require.NoError(t, err)
		add(name, v)
	}
	require.NoError(t, safetensors.WriteFile(filepath.Join(to, safetensors.ModelFile), all, nil))
	return to
}

// TestUnreadLayers: a bias or a norm that a layer has in the checkpoint and not in the
// architecture is an error, unless its values change nothing.
func TestUnreadLayers(t *testing.T) {
	const llama, gemma, bert = "../../testdata/extra/llama-f32", "../../testdata/extra/gemma3-linear", "../../testdata/encoders/roberta"
	for name, c := range map[string]struct {
		dir    string
		config map[string]any
		tensor string
		values []float32
		says   string // empty: it is neutral
		why    string
	}{
		"bias":                 {llama, nil, "model.layers.1.self_attn.q_proj.bias", []float32{0, 0, 1}, "found 1 at element 2, expected 0", ""},
		"bias of zeros":        {llama, nil, "model.layers.1.self_attn.q_proj.bias", make([]float32, 3), "", "bias of 0s"},
		"bias of a norm":       {llama, nil, "model.norm.bias", []float32{-2}, "found -2", ""},
		"bias of the head":     {llama, nil, "lm_head.bias", []float32{3}, "found 3", ""},
		"norm of heads":        {llama, nil, "model.layers.0.self_attn.q_norm.weight", []float32{1, 0.5}, "found 0.5 at element 1, expected 1", ""},
		"norm of ones":         {llama, nil, "model.layers.0.self_attn.q_norm.weight", []float32{1, 1}, "", "norm of 1s"},
		"norm behind a layer":  {llama, nil, "model.layers.0.post_feedforward_layernorm.weight", []float32{2}, "found 2", ""},
		"correction":           {"../../testdata/extra/qwen3-moe-normalized", nil, "model.layers.0.mlp.gate.e_score_correction_bias", []float32{1}, "found 1", ""},
		"norm of a Gemma":      {gemma, nil, "model.layers.0.self_attn.v_norm.weight", []float32{0, 1}, "found 1 at element 1, expected 0", ""},
		"Gemma's zeros":        {gemma, nil, "model.layers.0.self_attn.v_norm.weight", []float32{0, 0}, "", "norm of 0s"},
		"head of a classifier": {"../../testdata/tasks/classes-llama/merged", nil, "score.bias", []float32{1, 0}, "found 1", ""},
		"norm of an encoder":   {bert, nil, "encoder.layer.0.attention.self.LayerNorm.weight", []float32{2}, "found 2", ""},
		"old names":            {bert, nil, "encoder.layer.0.attention.self.LayerNorm.beta", []float32{2}, "found 2", ""},
	} {
		t.Run(name, func(t *testing.T) {
			m, err := model.Open(widened(t, c.dir, c.config, map[string][]float32{c.tensor: c.values}, nil))
			if c.says != "" {
				require.ErrorIs(t, err, model.ErrUnread)
				require.ErrorContains(t, err, c.says)
				require.ErrorContains(t, err, c.tensor)
				return
			}
			require.NoError(t, err)
			defer m.Close()
			require.Equal(t, []model.Unread{{Name: c.tensor, Why: c.why}}, m.Unread())
		})
	}
}

// TestUnreadLine says in one line what is not read and why.
func TestUnreadLine(t *testing.T) {
	one := []float32{1}
	dir := widened(t, "../../testdata/extra/llama-f32", nil, map[string][]float32{
		"model.layers.0.self_attn.rotary_emb.inv_freq": one, "model.layers.2.mlp.up_proj.weight": one, "model.layers.2.input_layernorm.weight": one,
		"model.vision_tower.patch.bias": one, "mtp.layers.0.norm.weight": one, "a": one, "b": one, "c": one, "d": one,
	}, nil)
	m, err := model.Open(dir)
	require.NoError(t, err)
	defer m.Close()
	require.Equal(t, dir+": 9 tensors of the checkpoint are not read: a, b, c and 1 more; model.layers.0.self_attn.rotary_emb.inv_freq (rotary frequencies are computed from config.json); "+
		"model.layers.2.input_layernorm.weight, model.layers.2.mlp.up_proj.weight (num_hidden_layers is 2); model.vision_tower.patch.bias (vision tower); mtp.layers.0.norm.weight (multi-token prediction)", m.UnreadLine())
	require.Contains(t, m.UnreadLine(model.VisionTower), ": 8 tensors")
	require.NotContains(t, m.UnreadLine(model.VisionTower), "tower")

	whole, err := model.Open("../../testdata/extra/llama-f32")
	require.NoError(t, err)
	defer whole.Close()
	require.Empty(t, whole.UnreadLine())
	require.Empty(t, whole.Unread())
	body, err := model.OpenAs("../../testdata/extra/llama-f32", model.Body)
	require.NoError(t, err)
	defer body.Close()
	require.Equal(t, []model.Unread{{Name: "lm_head.weight", Why: "language head", Expected: true}}, body.Unread())
	require.Empty(t, body.UnreadLine(), "nobody asked for the head")
}

// TestTiedHead: a head in the file is the embedding's copy, or tying it would change logits.
func TestTiedHead(t *testing.T) {
	tied := "../../testdata/extra/llama-gelu"
	m, err := model.Open(widened(t, tied, nil, nil, map[string]string{"lm_head.weight": "model.embed_tokens.weight"}))
	require.NoError(t, err)
	require.NoError(t, m.Close())
	require.Empty(t, m.UnreadLine())
	_, err = model.Open(reconfigured(t, "../../testdata/extra/llama-f32", map[string]any{"tie_word_embeddings": true}))
	require.ErrorIs(t, err, model.ErrUnread)
	require.ErrorContains(t, err, `"lm_head.weight" differs from "model.embed_tokens.weight"`)
}
