package model_test

import (
	"context"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/dev/testdevice"
	"github.com/lorafuse/lorafuse/internal/generate"
	"github.com/lorafuse/lorafuse/internal/model"
	"github.com/lorafuse/lorafuse/internal/quant"
	"github.com/lorafuse/lorafuse/safetensors"
	"github.com/lorafuse/lorafuse/tensor"
)

// logitsOf computes the logits of rows.
func logitsOf(t *testing.T, m *model.Model, rows [][]int32) []float32 {
	dev := testdevice.Open(t, backend.Options{})
	s, err := generate.NewScorer(dev, m, nil, len(rows)*len(rows[0]))
	require.NoError(t, err)
	defer s.Close()
	logits, err := s.Logits(context.Background(), rows)
	require.NoError(t, err)
	return logits
}

// requireNear compares logits in parts of the largest one.
func requireNear(t *testing.T, want, got []float32, limit float64) {
	require.Len(t, got, len(want))
	worst, size := 0.0, 0.0
	for i := range want {
		worst = max(worst, math.Abs(float64(want[i]-got[i])))
		size = max(size, math.Abs(float64(want[i])))
	}
	require.LessOrEqual(t, worst/size, limit)
}

// Models that transformers has saved with weights quantised by bitsandbytes
// give the logits of those weights, and every tensor of theirs is used.
func TestStoredQuantized(t *testing.T) {
	for name, want := range map[string]struct {
		dtype            tensor.DType
		weights, widened int
	}{
		"nf4": {tensor.NF4, 14, 0}, "nf4-double": {tensor.NF4, 14, 0}, "nf4-odd": {tensor.NF4, 7, 0}, "fp4-odd": {tensor.FP4, 7, 0},
		"int8": {tensor.Q8, 14, 0}, "int8-odd": {tensor.Invalid, 0, 7},
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join("../../testdata/quant", name)
			m, err := model.Open(dir)
			require.NoError(t, err)
			defer m.Close()
			q := m.Quantization()
			require.True(t, q.Stored)
			require.Equal(t, want.dtype, q.DType)
			require.Len(t, q.Weights, want.weights)
			require.Len(t, q.Widened, want.widened)
			var read []string
			elements := 0
			for _, name := range m.Used() {
				read = append(read, m.Stored(name)...)
				w, err := m.Weight(name)
				require.NoError(t, err)
				values, err := w.Float32s()
				require.NoError(t, err)
				elements += len(values)
			}
			require.ElementsMatch(t, m.Set().Names(), read)
			require.Equal(t, elements, m.Parameters())

			f, err := safetensors.Open(filepath.Join(dir, "golden.safetensors"))
			require.NoError(t, err)
			defer f.Close()
			requireNear(t, floats(t, f, "logits"), logitsOf(t, m, intRows(t, f, "input_ids")), 1e-5)
		})
	}
}

// A model that is quantised when it is loaded computes with what its blocks
// stand for: as a checkpoint with those numbers does.
func TestQuantize(t *testing.T) {
	for _, dir := range []string{"../../testdata/lm/llama/model-bf16", "../../testdata/extra/llama-head-dim"} {
		for _, method := range []quant.Method{quant.Int8, quant.Bit4} {
			t.Run(filepath.Base(dir)+"/"+string(method), func(t *testing.T) {
				m, err := model.Open(dir)
				require.NoError(t, err)
				defer m.Close()
				var done, total int64
				rose := true
				require.NoError(t, m.Quantize(method, func(d, n int64) {
					rose = rose && (d > done || done == n)
					done, total = d, n
				}))
				q := m.Quantization()
				require.Len(t, q.Weights, 7*m.Config.Layers)
				require.False(t, q.Stored)
				require.Equal(t, method.DType(), q.DType)
				require.Less(t, q.Bytes, q.Plain)

				wide, changed := t.TempDir(), 0
				var entries []safetensors.Entry
				for _, name := range m.Used() {
					w, err := m.Weight(name)
					require.NoError(t, err)
					values, err := w.Float32s()
					require.NoError(t, err)
					require.Equal(t, slices.Contains(q.Weights, name), w.DType.Quantized(), name)
					if w.DType.Quantized() {
						changed++
					}
					entries = append(entries, safetensors.Entry{Name: name, DType: safetensors.F32, Shape: w.Shape, Data: tensor.BytesOf(values)})
				}
				require.Equal(t, len(q.Weights), changed)
				copyFile(t, filepath.Join(wide, "config.json"), filepath.Join(dir, "config.json"))
				require.NoError(t, safetensors.WriteFile(filepath.Join(wide, "model.safetensors"), entries, nil))
				plain, err := model.Open(wide)
				require.NoError(t, err)
				defer plain.Close()

				rows := [][]int32{{3, 5, 7, 11, 13, 17, 19, 23, 29, 31}, {2, 4, 8, 16, 32, 64, 65, 66, 67, 68}}
				got := logitsOf(t, m, rows)
				require.Equal(t, total, done)
				require.True(t, rose)
				require.Equal(t, q.Bytes, total)
				requireNear(t, logitsOf(t, plain, rows), got, 1e-5)
				few := [][]int32{{3, 5, 7}} // are multiplied with the blocks as they lie
				requireNear(t, logitsOf(t, plain, few), logitsOf(t, m, few), 1e-5)
			})
		}
	}
}

func TestQuantizeStored(t *testing.T) {
	m, err := model.Open("../../testdata/quant/nf4")
	require.NoError(t, err)
	defer m.Close()
	require.NoError(t, m.Quantize(quant.None, nil))
	require.NoError(t, m.Quantize(quant.Bit4, nil))
	err = m.Quantize(quant.Int8, nil)
	require.ErrorIs(t, err, model.ErrUnsupported)
	require.ErrorContains(t, err, "quantize: found weights that are stored as nf4, expected int8")
}

// A weight that no block can hold is found while it is quantised.
func TestQuantizeNotFinite(t *testing.T) {
	dir := changedCheckpoint(t, "../../testdata/lm/llama/model", func(name string, data []byte) []byte {
		if name == "model.layers.1.mlp.up_proj.weight" {
			data = slices.Clone(data)
			copy(data[400:], tensor.BytesOf([]float32{float32(math.NaN())}))
		}
		return data
	}, nil)
	m, err := model.Open(dir)
	require.NoError(t, err)
	defer m.Close()
	require.NoError(t, m.Quantize(quant.Bit4, nil))
	dev := testdevice.Open(t, backend.Options{})
	s, err := generate.NewScorer(dev, m, nil, 4)
	require.NoError(t, err)
	defer s.Close()
	_, err = s.Logits(context.Background(), [][]int32{{1, 2}})
	require.ErrorIs(t, err, quant.ErrNotFinite)
	require.ErrorContains(t, err, `tensor "model.layers.1.mlp.up_proj.weight"`)
	// Devices make weights in pieces of their own size, and count from the piece's.
	require.Regexp(t, `element 100 is NaN|from element 64 on: quant: element 36 is NaN`, err.Error())
}

// changedCheckpoint is a copy of a model's folder: change may replace the bytes
// of a tensor, nil leaving it out, and config the keys of config.json.
func changedCheckpoint(t *testing.T, dir string, change func(name string, data []byte) []byte, config map[string]any) string {
	to := t.TempDir()
	raw, err := os.ReadFile(filepath.Join(dir, "config.json"))
	require.NoError(t, err)
	var c map[string]any
	require.NoError(t, json.Unmarshal(raw, &c))
	for k, v := range config {
		c[k] = v
	}
	raw, err = json.Marshal(c)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(to, "config.json"), raw, 0o666))
	f, err := safetensors.Open(filepath.Join(dir, "model.safetensors"))
	require.NoError(t, err)
	defer f.Close()
	var entries []safetensors.Entry
	for _, name := range f.Names() {
		v, err := f.Lookup(name)
		require.NoError(t, err)
		e := v.Entry()
		data := change(name, v.Bytes())
		if data == nil {
			continue
		}
		if len(data) != v.Len() {
			e.Shape = []int{len(data) * 8 / e.DType.Bits()}
		}
		e.Data, e.Write = data, nil
		entries = append(entries, e)
	}
	require.NoError(t, safetensors.WriteFile(filepath.Join(to, "model.safetensors"), entries, nil))
	return to
}

// What bitsandbytes has written must be whole.
func TestStoredQuantizedErrors(t *testing.T) {
	const q = "model.layers.0.self_attn.q_proj"
	drop := func(which string) func(string, []byte) []byte {
		return func(name string, data []byte) []byte {
			if name == which {
				return nil
			}
			return data
		}
	}
	shorten := func(which string, n int) func(string, []byte) []byte {
		return func(name string, data []byte) []byte {
			if name == which {
				return data[:len(data)-n]
			}
			return data
		}
	}
	spoil := func(which, from, to string) func(string, []byte) []byte {
		return func(name string, data []byte) []byte {
			if name == which {
				return []byte(strings.Replace(string(data), from, to, 1))
			}
			return data
		}
	}
	state := q + ".weight.quant_state.bitsandbytes__nf4"
	for _, c := range []struct {
		from   string
		change func(string, []byte) []byte
		kind   error
		says   string
	}{
		{"nf4", drop(q + ".weight.absmax"), model.ErrQuantized, `"` + q + `.weight.absmax"`},
		{"nf4", drop(q + ".weight.quant_map"), model.ErrQuantized, q + ".weight.quant_map"},
		{"nf4", drop(state), model.ErrQuantized, "found 0 tensors " + q + ".weight.quant_state"},
		{"nf4", drop(q + ".weight"), model.ErrQuantized, q + ".weight"},
		{"nf4", shorten(q+".weight", 1), quant.ErrFormat, "weight: 2047 elements, expected 2048"},
		{"nf4", shorten(q+".weight.absmax", 4), quant.ErrFormat, "absmax: 63 elements, expected 64"},
		{"nf4", shorten(q+".weight.quant_map", 4), quant.ErrFormat, "quant_map: 15 elements"},
		{"nf4", spoil(state, "64, ", "32, "), quant.ErrFormat, "blocksize: found 32"},
		{"nf4", spoil(state, "[64, 64]", "[32, 128]"), nil, "is [32 128], expected [64 64] from config.json"},
		{"nf4-double", drop(q + ".weight.nested_absmax"), model.ErrQuantized, q + ".weight.nested_absmax"},
		{"nf4-double", drop(q + ".weight.nested_quant_map"), model.ErrQuantized, q + ".weight.nested_quant_map"},
		{"nf4-double", spoil(state, `"nested_blocksize"`, `"nested_blocks"`), quant.ErrFormat, "nested_blocksize: found nothing"},
		{"int8", drop(q + ".SCB"), model.ErrQuantized, "found 0 tensors"},
		{"int8", shorten(q+".SCB", 4), model.ErrQuantized, "is [64 64], expected [63, in] from SCB"},
		{"int8", func(name string, data []byte) []byte {
			if name == q+".weight_format" {
				return []byte{1}
			}
			return data
		}, model.ErrQuantized, `weight_format" is [1], expected [0]`},
	} {
		t.Run(c.from+" "+c.says, func(t *testing.T) {
			_, err := model.Open(changedCheckpoint(t, filepath.Join("../../testdata/quant", c.from), c.change, nil))
			require.Error(t, err)
			if c.kind != nil {
				require.ErrorIs(t, err, c.kind)
			}
			require.ErrorContains(t, err, c.says)
			require.ErrorContains(t, err, q)
			require.NotContains(t, err.Error(), "\n")
		})
	}
	keep := func(_ string, data []byte) []byte { return data }
	_, err := model.Open(changedCheckpoint(t, "../../testdata/lm/llama/model", keep, map[string]any{"quantization_config": map[string]any{"load_in_4bit": true}}))
	require.ErrorIs(t, err, model.ErrConfig)
	require.ErrorContains(t, err, "quantization_config: found no weight in the files")
	_, err = model.Open(changedCheckpoint(t, "../../testdata/lm/llama/model", keep, map[string]any{"quantization_config": map[string]any{"quant_method": "hqq"}}))
	require.ErrorIs(t, err, model.ErrUnsupported)
	require.ErrorContains(t, err, `quant_method "hqq" (of HQQ); supported: awq, bitsandbytes`)
}
