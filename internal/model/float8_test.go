package model_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/internal/model"
	"github.com/lorafuse/lorafuse/internal/quant"
	"github.com/lorafuse/lorafuse/safetensors"
	"github.com/lorafuse/lorafuse/tensor"
)

const llamaDir = "../../testdata/lm/llama/model"

// float8Checkpoint writes the tiny llama with its layers in 8-bit floats, in the way of a
// tool, and the same numbers as they stand for in float32.
func float8Checkpoint(t *testing.T, suffix string, scaleShape func(out int) []int) (narrow, wide string) {
	t.Helper()
	m, err := model.Open(llamaDir)
	require.NoError(t, err)
	defer m.Close()
	var stored, plain []safetensors.Entry
	add := func(to *[]safetensors.Entry, name string, d safetensors.DType, shape []int, data []byte) {
		*to = append(*to, safetensors.Entry{Name: name, DType: d, Shape: shape, Data: data})
	}
	for _, name := range m.Used() {
		w, err := m.Weight(name)
		require.NoError(t, err)
		values, err := w.Float32s()
		require.NoError(t, err)
		codes, want := make([]byte, len(values)), make([]float32, len(values))
		var shape []int
		scales := []float32{1}
		if suffix != "" && strings.Contains(name, "proj") {
			shape = scaleShape(w.Shape[0])
			n, err := tensor.NumElements(shape)
			require.NoError(t, err)
			scales = make([]float32, n)
			for i := range scales {
				scales[i] = 0.003 + 0.0001*float32(i)
			}
			add(&stored, strings.TrimSuffix(name, ".weight")+suffix, safetensors.F32, shape, tensor.BytesOf(scales))
		}
		row := len(values) / len(scales)
		for i, x := range values {
			codes[i] = tensor.Float32ToF8E4M3(x / scales[min(i/row, len(scales)-1)])
			want[i] = tensor.F8E4M3ToFloat32(codes[i]) * scales[min(i/row, len(scales)-1)]
		}
		add(&stored, name, safetensors.F8E4M3, w.Shape, codes)
		add(&plain, name, safetensors.F32, w.Shape, tensor.BytesOf(want))
	}
	return saveCheckpoint(t, stored), saveCheckpoint(t, plain)
}

func saveCheckpoint(t *testing.T, entries []safetensors.Entry) string {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, safetensors.WriteFile(filepath.Join(dir, "model.safetensors"), entries, nil))
	raw, err := os.ReadFile(filepath.Join(llamaDir, "config.json"))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "config.json"), raw, 0o666))
	return dir
}

// Weights that are stored in 8-bit floats, plainly, with one scale or with one for each
// row, are the numbers that they stand for, and take a byte each.
func TestStoredFloat8(t *testing.T) {
	for name, x := range map[string]struct {
		suffix string
		shape  func(int) []int
	}{
		"plain":          {"", nil},
		"scalar":         {".scale_weight", func(int) []int { return nil }},
		"one":            {".weight_scale", func(int) []int { return []int{1} }},
		"rows":           {".weight_scale", func(out int) []int { return []int{out, 1} }},
		"rows, one axis": {".weight_scale", func(out int) []int { return []int{out} }},
	} {
		t.Run(name, func(t *testing.T) {
			narrow, wide := float8Checkpoint(t, x.suffix, x.shape)
			m, err := model.Open(narrow)
			require.NoError(t, err)
			defer m.Close()
			plain, err := model.Open(wide)
			require.NoError(t, err)
			defer plain.Close()
			q := m.Quantization()
			assert.Equal(t, tensor.F8E4M3, q.DType)
			assert.Len(t, q.Weights, 14)
			assert.Contains(t, strings.Join(q.Lines(), "\n"), "14 linear layers as fp8")
			assert.Equal(t, plain.Parameters(), m.Parameters())
			rows := [][]int32{{1, 5, 9, 2, 7}, {3, 4}}
			requireNear(t, logitsOf(t, plain, rows), logitsOf(t, m, rows), 1e-6)
			for _, name := range plain.Used() {
				want, err := plain.Weight(name)
				require.NoError(t, err)
				found, err := m.Weight(name)
				require.NoError(t, err)
				a, err := want.Float32s()
				require.NoError(t, err)
				b, err := found.Float32s()
				require.NoError(t, err)
				require.Equal(t, a, b, name)
			}
			require.NoError(t, m.Quantize(quant.Fp8, nil), "they are")
			require.ErrorIs(t, m.Quantize(quant.Bit4, nil), model.ErrUnsupported)
		})
	}
}

// What is made on load is near the original, one scale for each row.
func TestQuantizeFloat8(t *testing.T) {
	m, err := model.Open(llamaDir)
	require.NoError(t, err)
	defer m.Close()
	const name = "model.layers.0.mlp.down_proj.weight"
	w, err := m.Weight(name)
	require.NoError(t, err)
	want, err := w.Float32s()
	require.NoError(t, err)
	rows := [][]int32{{1, 5, 9, 2, 7}}
	before, n := logitsOf(t, m, rows), m.Parameters()
	require.NoError(t, m.Quantize(quant.Fp8, nil))
	assert.Equal(t, n, m.Parameters())
	w, err = m.Weight(name)
	require.NoError(t, err)
	assert.Equal(t, tensor.F8E4M3, w.DType)
	got, err := w.Float32s()
	require.NoError(t, err)
	row := w.Shape[1]
	for o := range w.Shape[0] {
		largest := float32(0)
		for _, x := range want[o*row : o*row+row] {
			largest = max(largest, x, -x)
		}
		for i := o * row; i < o*row+row; i++ { // half a step: 2⁻⁴ of the number, or of the least normal
			require.InDelta(t, want[i], got[i], float64(max(want[i], -want[i]))/16+float64(largest)/448/1024+1e-9)
		}
	}
	requireNear(t, before, logitsOf(t, m, rows), 0.1)
	assert.Contains(t, strings.Join(m.Quantization().Lines(), "\n"), "quantize fp8: 14 linear layers")
}

// Scales that fit nothing are named.
func TestStoredFloat8Errors(t *testing.T) {
	narrow, _ := float8Checkpoint(t, ".scale_weight", func(out int) []int { return []int{3} })
	_, err := model.Open(narrow)
	require.ErrorIs(t, err, model.ErrQuantized)
	require.ErrorContains(t, err, "scale_weight is F32 [3], expected one float, or one for each of")
}
