package model_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/internal/model"
	"github.com/lorafuse/lorafuse/safetensors"
	"github.com/lorafuse/lorafuse/tensor"
)

// float8Stacks writes a Qwen3-MoE whose experts are stacks in 8-bit floats with scales of a shape, as
// transformers 5 has them, and the same numbers in float32. block is that of quantization_config,
// and index returns the scale of an element of a matrix [out, in]. Tensors get another prefix.
func float8Stacks(t *testing.T, block []int, scales func(out, in int) []int, index func(out, in, row, column int) int) (narrow, wide string) {
	t.Helper()
	const from, experts = "../../testdata/extra/qwen3-moe-normalized", 6
	raw, err := os.ReadFile(filepath.Join(from, "config.json"))
	require.NoError(t, err)
	config := map[string]any{}
	require.NoError(t, json.Unmarshal(raw, &config))
	f, err := safetensors.Open(filepath.Join(from, "model.safetensors"))
	require.NoError(t, err)
	defer f.Close()
	var stored, plain []safetensors.Entry
	for _, name := range f.Names() {
		if strings.Contains(name, ".experts.") {
			continue
		}
		v, err := f.Lookup(name)
		require.NoError(t, err)
		e := safetensors.Entry{Name: strings.TrimPrefix(name, "model."), DType: v.DType, Shape: v.Shape, Data: v.Bytes()}
		stored, plain = append(stored, e), append(plain, e)
	}
	draw := rand.New(rand.NewPCG(3, 4))
	for layer := range 2 {
		for i, name := range []string{"down_proj", "gate_up_proj"} {
			name = fmt.Sprintf("layers.%d.mlp.experts.%s", layer, name)
			out, in := []int{32, 40}[i], []int{20, 32}[i]
			each := 1
			for _, n := range scales(out, in) {
				each *= n
			}
			s, codes, values := make([]float32, experts*each), make([]byte, experts*out*in), make([]float32, experts*out*in)
			for i := range s {
				s[i] = 0.001 + 0.004*draw.Float32()
			}
			for i := range codes {
				codes[i] = tensor.Float32ToF8E4M3(float32(draw.NormFloat64()) * 40)
				expert, row, column := i/(out*in), i/in%out, i%in
				values[i] = tensor.F8E4M3ToFloat32(codes[i]) * s[expert*each+index(out, in, row, column)]
			}
			stored = append(stored,
				safetensors.Entry{Name: name, DType: safetensors.F8E4M3, Shape: []int{experts, out, in}, Data: codes},
				safetensors.Entry{Name: name + "_scale_inv", DType: safetensors.F32, Shape: append([]int{experts}, scales(out, in)...), Data: tensor.BytesOf(s)})
			plain = append(plain, safetensors.Entry{Name: name, DType: safetensors.F32, Shape: []int{experts, out, in}, Data: tensor.BytesOf(values)})
		}
	}
	save := func(entries []safetensors.Entry) string {
		dir := t.TempDir()
		require.NoError(t, safetensors.WriteFile(filepath.Join(dir, "model.safetensors"), entries, nil))
		raw, err := json.Marshal(config)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(dir, "config.json"), raw, 0o666))
		return dir
	}
	wide = save(plain)
	config["quantization_config"] = map[string]any{"quant_method": "fp8", "weight_block_size": block}
	return save(stored), wide
}

// TestFloat8Stacks: stacks of experts in 8-bit floats are the numbers that they stand for. They keep
// their 8 bits.
func TestFloat8Stacks(t *testing.T) {
	blocks := func(down, across int) (func(out, in int) []int, func(out, in, row, column int) int) {
		parts := func(n, size int) int { return (n + size - 1) / size }
		return func(out, in int) []int { return []int{parts(out, down), parts(in, across)} },
			func(_, in, row, column int) int { return row/down*parts(in, across) + column/across }
	}
	partial, ofPartial := blocks(16, 4)
	odd, ofOdd := blocks(8, 8)
	for name, c := range map[string]struct {
		block  []int
		scales func(out, in int) []int
		index  func(out, in, row, column int) int
	}{
		"blocks that end with the matrix": {[]int{16, 4}, partial, ofPartial},
		"blocks that rows do not fill":    {[]int{8, 8}, odd, ofOdd},
		"one for each matrix":             {nil, func(int, int) []int { return []int{1, 1} }, func(int, int, int, int) int { return 0 }},
		"one for each row":                {nil, func(out, _ int) []int { return []int{out, 1} }, func(_, _, row, _ int) int { return row }},
	} {
		t.Run(name, func(t *testing.T) {
			narrow, wide := float8Stacks(t, c.block, c.scales, c.index)
			m, err := model.Open(narrow)
			require.NoError(t, err)
			defer m.Close()
			plain, err := model.Open(wide)
			require.NoError(t, err)
			defer plain.Close()
			require.Empty(t, m.UnreadLine())
			q := m.Quantization()
			require.Len(t, q.Weights, 4)
			require.Empty(t, q.Widened)
			require.Contains(t, strings.Join(q.Lines(), "\n"), "4 linear layers and stacks of experts as fp8 in ")
			require.Equal(t, plain.Parameters(), m.Parameters())
			kept := 0
			for _, name := range plain.Used() {
				want, err := plain.Weight(name)
				require.NoError(t, err)
				found, err := m.Weight(name)
				require.NoError(t, err)
				if found.DType == tensor.F8E4M3 {
					kept++
				}
				a, err := want.Float32s()
				require.NoError(t, err)
				b, err := found.Float32s()
				require.NoError(t, err)
				require.Equal(t, a, b, name)
			}
			require.Equal(t, 4, kept)
			rows := [][]int32{{1, 5, 9, 2, 7, 40, 3}, {3, 4}}
			requireNear(t, logitsOf(t, plain, rows), logitsOf(t, m, rows), 1e-6)
		})
	}
	narrow, _ := float8Stacks(t, []int{16, 4}, odd, ofOdd)
	_, err := model.Open(narrow)
	require.ErrorIs(t, err, model.ErrQuantized)
	require.ErrorContains(t, err, "mlp.experts.down_proj_scale_inv is F32 [6 4 3], expected one float, or one for each of 32 rows, of each of 6 matrices, or [6 2 5] for blocks of [16 4]")
}
