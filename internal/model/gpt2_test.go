package model_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/dev/testdevice"
	"github.com/lorafuse/lorafuse/internal/generate"
	"github.com/lorafuse/lorafuse/internal/model"
	"github.com/lorafuse/lorafuse/internal/quant"
	"github.com/lorafuse/lorafuse/safetensors"
)

// TestEarlyGPTFiles: published files of GPT-2 name no body and hold causal masks, and those of
// Pythia call the head embed_out. A mask in any other place is refused, as a bias.
func TestEarlyGPTFiles(t *testing.T) {
	dev := testdevice.Open(t, backend.Options{})
	for _, c := range []struct {
		name, mask string
		rename     *strings.Replacer
	}{
		{"gpt2-tied", "h.0.attn.bias", strings.NewReplacer("transformer.", "")},
		{"gpt2", "transformer.h.1.attn.masked_bias", strings.NewReplacer()},
		{"gpt-neox", "gpt_neox.layers.0.attention.bias", strings.NewReplacer("lm_head", "embed_out")},
	} {
		from := filepath.Join("../../testdata/extra", c.name)
		dir := t.TempDir()
		f, err := safetensors.Open(filepath.Join(from, "model.safetensors"))
		require.NoError(t, err)
		var entries []safetensors.Entry
		for _, name := range f.Names() {
			v, err := f.Lookup(name)
			require.NoError(t, err)
			entries = append(entries, safetensors.Entry{Name: c.rename.Replace(name), DType: v.DType, Shape: v.Shape, Data: v.Bytes()})
		}
		entries = append(entries, safetensors.Entry{Name: c.mask, DType: safetensors.U8, Shape: []int{1, 1, 2, 2}, Data: []byte{1, 0, 1, 1}})
		require.NoError(t, safetensors.WriteFile(filepath.Join(dir, "model.safetensors"), entries, nil))
		require.NoError(t, f.Close())
		copyFile(t, filepath.Join(dir, "config.json"), filepath.Join(from, "config.json"))
		m, g, ids, s := golden{dir: dir, file: filepath.Join(from, "golden.safetensors")}.open(t, dev)
		checkLogits(t, s, ids, floats(t, g, "logits"))
		require.Empty(t, m.UnreadLine())
	}
}

// TestQuantizeTransposed: weights that are stored transposed are quantised as those of linear
// layers, from their rows as the layer computes with them.
func TestQuantizeTransposed(t *testing.T) {
	m, err := model.Open(wideGPT2(t))
	require.NoError(t, err)
	t.Cleanup(func() { m.Close() })
	name := "transformer.h.0.attn.c_attn.weight"
	stored, err := m.Weight(name)
	require.NoError(t, err)
	require.Equal(t, []int{64, 192}, stored.Shape)
	want, err := stored.Float32s()
	require.NoError(t, err)
	require.ErrorContains(t, m.Quantize(quant.Fp8, nil), "stored transposed")
	require.NoError(t, m.Quantize(quant.Int8, nil))
	w, err := m.Weight(name + ".transposed")
	require.NoError(t, err)
	require.Equal(t, []int{192, 64}, w.Shape)
	got, err := w.Float32s()
	require.NoError(t, err)
	for i := range 192 {
		for j := range 64 {
			require.InDelta(t, want[j*192+i], got[i*64+j], 0.01)
		}
	}
	s, err := generate.NewScorer(testdevice.Open(t, backend.Options{}), m, nil, 8)
	require.NoError(t, err)
	t.Cleanup(func() { s.Close() })
	_, err = s.Logits(t.Context(), [][]int32{{1, 2, 3}})
	require.NoError(t, err)
}

// wideGPT2 writes a GPT-2 whose rows are whole blocks.
func wideGPT2(t *testing.T) string {
	dir, d := t.TempDir(), 64
	config := map[string]any{"architectures": []string{"GPT2LMHeadModel"}, "model_type": "gpt2", "n_embd": d, "n_layer": 1, "n_head": 2, "n_positions": 8, "vocab_size": 16}
	raw, err := json.Marshal(config)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "config.json"), raw, 0o644))
	var entries []safetensors.Entry
	add := func(name string, shape ...int) {
		n := 1
		for _, s := range shape {
			n *= s
		}
		data := make([]byte, 0, 2*n)
		for i := range n {
			data = append(data, byte(i*7), byte(0x3c+i%2*0x80)) // ±1.0 to ±1.25 in f16
		}
		entries = append(entries, safetensors.Entry{Name: name, DType: safetensors.F16, Shape: shape, Data: data})
	}
	add("wte.weight", 16, d)
	add("wpe.weight", 8, d)
	for name, out := range map[string][2]int{"h.0.attn.c_attn": {d, 3 * d}, "h.0.attn.c_proj": {d, d}, "h.0.mlp.c_fc": {d, 4 * d}, "h.0.mlp.c_proj": {4 * d, d}} {
		add(name+".weight", out[0], out[1])
		add(name+".bias", out[1])
	}
	for _, name := range []string{"h.0.ln_1", "h.0.ln_2", "ln_f"} {
		add(name+".weight", d)
		add(name+".bias", d)
	}
	require.NoError(t, safetensors.WriteFile(filepath.Join(dir, "model.safetensors"), entries, nil))
	return dir
}
