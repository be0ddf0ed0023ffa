package model_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/internal/model"
	"github.com/lorafuse/lorafuse/internal/nn"
	"github.com/lorafuse/lorafuse/internal/quant"
	"github.com/lorafuse/lorafuse/internal/weights"
	"github.com/lorafuse/lorafuse/safetensors"
	"github.com/lorafuse/lorafuse/tensor"
)

const packedData = "../../testdata/quant"

// TestPackedGoldens: weights of GPTQ and AWQ are bit for bit those that GPTQModel and AutoAWQ
// dequantise, as floats and in blocks, and the logits are those of these weights in float64.
func TestPackedGoldens(t *testing.T) {
	for name, want := range map[string]struct {
		blocks, widened int
		of              tensor.DType // type of the blocks
	}{
		"gptq-4":       {14, 0, tensor.Z4},
		"gptq-4-act":   {0, 14, tensor.Invalid},
		"gptq-4-v2":    {12, 0, tensor.Z4},
		"gptq-3":       {7, 0, tensor.Z4},
		"gptq-2":       {7, 0, tensor.Z4},
		"gptq-8":       {7, 0, tensor.Z8},
		"gptq-16":      {0, 7, tensor.Invalid},
		"gptq-dynamic": {6, 0, tensor.Z4},
		"gptq-experts": {13, 0, tensor.Z4},
		"awq":          {14, 0, tensor.Z4},
		"awq-mixed":    {6, 0, tensor.Z4},
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(packedData, name)
			m, err := model.Open(dir)
			require.NoError(t, err)
			defer m.Close()
			q := m.Quantization()
			require.True(t, q.Stored)
			require.Len(t, q.Weights, want.blocks)
			require.Len(t, q.Widened, want.widened)
			require.Empty(t, m.UnreadLine())
			tool := strings.ToUpper(name[:strings.IndexByte(name+"-", '-')])
			require.Contains(t, strings.Join(q.Lines(), "\n"), "quantize by "+tool+": ")
			require.ErrorIs(t, m.Quantize(quant.Bit4, nil), model.ErrUnsupported)

			f, err := safetensors.Open(filepath.Join(dir, "golden.safetensors"))
			require.NoError(t, err)
			defer f.Close()
			shown := 0
			for _, key := range f.Names() {
				name, ok := strings.CutPrefix(key, "weights.")
				if !ok {
					continue
				}
				shown++
				for _, from := range []nn.Weights{m, m.InBlocks()} {
					w, err := from.Weight(name)
					require.NoError(t, err)
					values, err := w.Float32s()
					require.NoError(t, err)
					require.Equal(t, floats(t, f, key), values, name)
				}
			}
			require.NotZero(t, shown)
			for _, name := range q.Weights {
				w, err := m.InBlocks().Weight(name)
				require.NoError(t, err)
				require.True(t, w.DType == want.of || strings.Contains(dir, "dynamic"), name)
				if w.DType == tensor.Z4 {
					require.LessOrEqual(t, 8*w.Size(), 5*w.Shape[0]*w.Shape[1], "bits of a weight")
				}
			}
			requireNear(t, floats(t, f, "logits"), logitsOf(t, m, intRows(t, f, "input_ids")), 1e-5)
		})
	}
}

// TestPackedFile: the settings may be in a file of their own, as AutoGPTQ writes them.
func TestPackedFile(t *testing.T) {
	for name, file := range map[string]string{"gptq-3": "quantize_config.json", "awq": "quant_config.json"} {
		from := filepath.Join(packedData, name)
		keep := func(_ string, data []byte) []byte { return data }
		dir := changedCheckpoint(t, from, keep, map[string]any{"quantization_config": nil})
		_, err := model.Open(dir)
		require.ErrorIs(t, err, model.ErrConfig)
		require.ErrorContains(t, err, "expected the settings of GPTQ or AWQ there or in quantize_config.json")
		settings := `{"bits": 3, "group_size": -1, "desc_act": false}`
		if name == "awq" {
			settings = `{"zero_point": true, "q_group_size": 32, "w_bit": 4, "version": "GEMM"}`
		}
		require.NoError(t, os.WriteFile(filepath.Join(dir, file), []byte(settings), 0o666))
		m, err := model.Open(dir)
		require.NoError(t, err)
		want, err := model.Open(from)
		require.NoError(t, err)
		ids := [][]int32{{3, 4, 5, 6}}
		require.Equal(t, logitsOf(t, want, ids), logitsOf(t, m, ids))
		require.NoError(t, m.Close())
		require.NoError(t, want.Close())
	}
}

// TestPackedErrors: what contradicts quantization_config, or is not read, is named.
func TestPackedErrors(t *testing.T) {
	const q = "model.layers.0.self_attn.q_proj"
	keep := func(_ string, data []byte) []byte { return data }
	drop := func(suffix string) func(string, []byte) []byte {
		return func(name string, data []byte) []byte {
			if name == q+suffix {
				return nil
			}
			return data
		}
	}
	set := func(suffix string, at int, bytes ...byte) func(string, []byte) []byte {
		return func(name string, data []byte) []byte {
			if name == q+suffix {
				data = append([]byte(nil), data...)
				copy(data[at:], bytes)
			}
			return data
		}
	}
	for _, c := range []struct {
		from, config string
		change       func(string, []byte) []byte
		kind         error
		says         string
	}{
		{"gptq-4", "", drop(".qzeros"), safetensors.ErrNotFound, q + ".qzeros"},
		{"gptq-4", "", drop(".scales"), safetensors.ErrNotFound, q + ".scales"},
		{"gptq-4", "", drop(".qweight"), nn.ErrMissing, q + ".weight"},
		{"gptq-4", "", set(".g_idx", 8, 2), weights.ErrPacked, q + ".g_idx: element 2 is 2, expected 0 to 1"},
		{"gptq-4", "", set(".g_idx", 8, 255, 255, 255, 255), weights.ErrPacked, q + ".g_idx: element 2 is -1, expected 0 to 1"},
		{"gptq-4", `{"quant_method": "gptq", "bits": 8}`, keep, weights.ErrPacked, "with [8] bits"},
		{"gptq-4", `{"quant_method": "gptq", "bits": 5}`, keep, model.ErrUnsupported, `bits "5"; supported: 2, 3, 4, 8`},
		{"gptq-4", `{"quant_method": "gptq", "bits": 4, "group_size": 0}`, keep, model.ErrConfig, "group_size: found 0"},
		{"gptq-4", `{"quant_method": "gptq", "bits": 4, "group_size": "x"}`, keep, model.ErrConfig, "group_size"},
		{"gptq-4", `{"quant_method": "gptq", "bits": 4, "checkpoint_format": "marlin"}`, keep, model.ErrUnsupported, `checkpoint_format "marlin"; supported: gptq, gptq_v2`},
		{"gptq-4", `{"quant_method": "gptq", "bits": 4, "is_marlin_format": true}`, keep, model.ErrUnsupported, "is_marlin_format"},
		{"gptq-4", `{"quant_method": "gptq", "bits": 4, "pack_dtype": "int64"}`, keep, model.ErrUnsupported, "pack_dtype"},
		{"gptq-4", `{"quant_method": "gptq", "bits": 4, "adapter": {"rank": 8}}`, keep, model.ErrUnsupported, "adapter"},
		{"gptq-4", `{"quant_method": "gptq", "bits": 4, "dynamic": {"+:x": {"bits": 7}}}`, keep, model.ErrUnsupported, `dynamic: +:x: unsupported model: bits "7"`},
		{"gptq-4", `{"quant_method": "gptq", "bits": 4, "dynamic": {"+:x": 3}}`, keep, model.ErrConfig, "dynamic: +:x"},
		{"gptq-4", `{"quant_method": "awq", "bits": 4}`, keep, weights.ErrPacked, "do not fit each other"},
		{"gptq-4-v2", `{"quant_method": "gptq", "bits": 4, "group_size": 128, "checkpoint_format": "gptq_v2"}`, keep, weights.ErrPacked, "expected a group_size of [128]"},
		{"awq", `{"quant_method": "awq", "bits": 4, "version": "gemv"}`, keep, model.ErrUnsupported, `version "gemv"; supported: gemm`},
		{"awq", `{"quant_method": "awq", "bits": 3}`, keep, model.ErrUnsupported, `bits "3"; supported: 4`},
		{"awq", `{"quant_method": "gptq", "bits": 4}`, keep, weights.ErrPacked, "do not fit each other"},
		{"awq", `{"quant_method": "hqq"}`, keep, model.ErrUnsupported, `quant_method "hqq" (of HQQ); supported: awq, bitsandbytes, compressed-tensors, fp8, gptq; or use the unquantised checkpoint`},
	} {
		t.Run(c.from+" "+c.says, func(t *testing.T) {
			changed := map[string]any{}
			if c.config != "" {
				changed["quantization_config"] = json.RawMessage(c.config)
			}
			_, err := model.Open(changedCheckpoint(t, filepath.Join(packedData, c.from), c.change, changed))
			require.ErrorIs(t, err, c.kind)
			require.ErrorContains(t, err, c.says)
			require.NotContains(t, err.Error(), "\n")
		})
	}
	_, err := model.Open(changedCheckpoint(t, "../../testdata/lm/llama/model", keep, map[string]any{"quantization_config": map[string]any{"quant_method": "gptq", "bits": 4}}))
	require.ErrorIs(t, err, model.ErrConfig)
	require.ErrorContains(t, err, "found no layer of GPTQ in the files")

	m, err := model.Open(changedCheckpoint(t, filepath.Join(packedData, "gptq-4"), set(".scales", 0, 0, 0x7c), nil)) // infinity
	require.NoError(t, err)
	defer m.Close()
	w, err := m.Weight(q + ".weight")
	require.NoError(t, err)
	_, err = w.Float32s()
	require.ErrorIs(t, err, quant.ErrNotFinite)
	require.ErrorContains(t, err, q+".scales: element 0 is +Inf")
}
