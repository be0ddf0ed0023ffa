package model_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/dev/testdevice"
	"github.com/lorafuse/lorafuse/internal/model"
	"github.com/lorafuse/lorafuse/internal/quant"
)

const encoders = "../../testdata/encoders/"

// Layers that are stored as one have the rows that transformers 5 gives them.
func TestFused(t *testing.T) {
	for _, c := range []struct {
		dir, fused string
		parts      []string
	}{
		{"nomic-bert", "encoder.layers.1.attn.Wqkv.weight", []string{"q_proj.weight", "k_proj.weight", "v_proj.weight"}},
		{"nomic-bert-own", "bert.encoder.layers.1.attn.Wqkv.weight", []string{"q_proj.weight", "k_proj.weight", "v_proj.weight"}},
		{"gte-head", "gte.encoder.layer.1.attention.qkv_proj.bias", []string{"q_proj.bias", "k_proj.bias", "v_proj.bias"}},
		{"gte-own", "new.encoder.layer.1.attention.qkv_proj.weight", []string{"q_proj.weight", "k_proj.weight", "v_proj.weight"}},
	} {
		m, err := model.Open(encoders + c.dir)
		require.NoError(t, err)
		whole, err := m.Weight(c.fused)
		require.NoError(t, err)
		want, err := whole.Float32s()
		require.NoError(t, err)
		for i, part := range c.parts {
			name := "layers.1.self_attn." + part
			require.Equal(t, []string{c.fused}, m.Stored(name))
			require.True(t, m.Has(name))
			_, at, of := m.Fused(name)
			require.Equal(t, []int{i, 3}, []int{at, of})
			w, err := m.Weight(name)
			require.NoError(t, err)
			require.Equal(t, whole.Shape[0]/3, w.Shape[0])
			got, err := w.Float32s()
			require.NoError(t, err)
			require.Equal(t, want[i*len(want)/3:(i+1)*len(want)/3], got)
		}
		require.False(t, m.Has("layers.2.self_attn.q_proj.weight"))
		require.Empty(t, m.UnreadLine("head of another task"))
		require.NoError(t, m.Close())
	}
}

// Quantized parts have the blocks of the whole.
func TestFusedQuantized(t *testing.T) {
	m, err := model.Open(encoders + "nomic-bert")
	require.NoError(t, err)
	defer m.Close()
	name := func(part string) string { return "layers.0.self_attn." + part + ".weight" }
	plain, err := m.Weight(name("k_proj"))
	require.NoError(t, err)
	want, err := plain.Float32s()
	require.NoError(t, err)
	require.NoError(t, m.Quantize(quant.Int8, nil))
	w, err := m.Weight(name("k_proj"))
	require.NoError(t, err)
	require.True(t, w.DType.Quantized())
	require.Equal(t, []int{24, 24}, w.Shape)
	got, err := w.Float32s()
	require.NoError(t, err)
	require.InDeltaSlice(t, want, got, 0.01)
	require.NotEqual(t, want, got)
	require.Len(t, m.Quantization().Weights, 2*5)
}

// Settings of their own code that are not computed are refused by name.
func TestRotaryEncoderErrors(t *testing.T) {
	for _, c := range []struct {
		dir, key string
		value    any
		says     string
	}{
		{"nomic-bert-own", "activation_function", "gelu", `activation_function "gelu"; supported: swiglu, geglu`},
		{"nomic-bert-own", "prenorm", true, `prenorm "true"; supported: false`},
		{"nomic-bert-own", "qkv_proj_bias", true, `qkv_proj_bias "true"`},
		{"nomic-bert-own", "rotary_emb_fraction", 0.5, `rotary_emb_fraction "0.5"; supported: 1`},
		{"nomic-bert-own", "rotary_emb_scale_base", 512, `rotary_emb_scale_base "512"; supported: 0`},
		{"nomic-bert-own", "moe_every_n_layers", 2, `moe_every_n_layers "2"; supported: 0`},
		{"nomic-bert-own", "max_trained_positions", 0, "max_trained_positions: found 0, expected 1 or more"},
		{"nomic-bert", "head_dim", 7, "head_dim: found 7, expected an even number"},
		{"nomic-bert", "rope_parameters", map[string]any{"rope_type": "default", "partial_rotary_factor": 0.5}, `partial_rotary_factor "0.5"`},
		{"gte-own", "layer_norm_type", "rms_norm", `layer_norm_type "rms_norm"; supported: layer_norm`},
		{"gte-own", "position_embedding_type", "absolute", `position_embedding_type "absolute"; supported: rope`},
		{"gte-own", "logn_attention_scale", true, `logn_attention_scale "true"`},
		{"gte-own", "rope_scaling", map[string]any{"type": "ntk", "factor": 2, "mixed_b": 0.5}, "mixed_b: unknown key"},
		{"gte-own", "rope_scaling", map[string]any{"type": "ntk", "factor": 0}, "expected a factor of more than 0"},
	} {
		raw, err := os.ReadFile(filepath.Join(encoders, c.dir, "config.json"))
		require.NoError(t, err)
		_, err = model.ParseConfig(changed(t, raw, map[string]any{c.key: c.value}))
		require.ErrorContains(t, err, c.says)
	}
}

// Nomic BERT's own code scales positions of texts that are longer than those of its training.
func TestNomicScaling(t *testing.T) {
	dev := testdevice.Open(t, backend.Options{})
	dir := encoders + "nomic-bert-own"
	m, f, ids, s := golden{dir: dir, file: filepath.Join(dir, "golden.safetensors")}.open(t, dev)
	require.Equal(t, 48, m.Config.MaxLength())
	require.Greater(t, len(ids[0]), 12, "max_trained_positions")
	checkHidden(t, s, ids, f)
}
