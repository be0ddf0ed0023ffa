package merge

import (
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/internal/model"
	"github.com/lorafuse/lorafuse/safetensors"
	"github.com/lorafuse/lorafuse/tensor"
)

const float8Dir = "../../testdata/quant/fp8-block"

// widened writes the weights that a model in 8-bit floats stands for, in float32.
func widened(t testing.TB, dir string) string {
	t.Helper()
	m, err := model.Open(dir)
	require.NoError(t, err)
	defer m.Close()
	var entries []safetensors.Entry
	for _, name := range m.Used() {
		if strings.HasSuffix(name, ".weight_scale") {
			continue
		}
		w, err := m.Weight(name)
		require.NoError(t, err)
		values, err := w.Float32s()
		require.NoError(t, err)
		entries = append(entries, safetensors.Entry{Name: name, DType: safetensors.F32, Shape: w.Shape, Data: tensor.BytesOf(values)})
	}
	to := t.TempDir()
	require.NoError(t, safetensors.WriteFile(filepath.Join(to, "model.safetensors"), entries, nil))
	config := strings.Replace(readFile(t, filepath.Join(dir, "config.json")), "quantization_config", "former", 1)
	writeFile(t, filepath.Join(to, "config.json"), config)
	return to
}

// TestMergeFloat8: models in 8-bit floats are merged as the numbers that they stand for, into
// plain weights or into 8-bit floats with scales of the same blocks.
func TestMergeFloat8(t *testing.T) {
	adapter := filepath.Join(float8Dir, "train/final")
	plain, _ := open(t, widened(t, float8Dir), adapter).merged(t, Options{})
	want := weightsOf(t, plain)

	dir, r := open(t, float8Dir, adapter).merged(t, Options{DType: tensor.F32})
	require.Zero(t, r.Rounding)
	require.Equal(t, 14, r.Merged)
	require.Equal(t, want, weightsOf(t, dir))
	require.NotContains(t, readObject(t, filepath.Join(dir, "config.json")), "quantization_config")

	for _, d := range []tensor.DType{tensor.Invalid, tensor.F8E4M3} {
		dir, r = open(t, float8Dir, adapter).merged(t, Options{DType: d})
		require.Equal(t, 14, r.Merged)
		require.Equal(t, readObject(t, filepath.Join(float8Dir, "config.json")), readObject(t, filepath.Join(dir, "config.json")))
		errorsSquared, squares, changes := 0.0, 0.0, 0.0
		before, got := weightsOf(t, widened(t, float8Dir)), weightsOf(t, widened(t, dir))
		require.Len(t, got, len(want))
		for name, values := range want {
			if !strings.Contains(name, "_proj") {
				require.Equal(t, values, got[name], name)
				continue
			}
			for i, x := range values {
				wrong := float64(got[name][i]) - float64(x)
				require.LessOrEqual(t, math.Abs(wrong), math.Abs(float64(x))/15+1e-3, name)
				errorsSquared += wrong * wrong
				squares += float64(x) * float64(x)
				changes += math.Pow(float64(x)-float64(before[name][i]), 2)
			}
		}
		require.InEpsilon(t, math.Sqrt(errorsSquared/squares), r.Rounding, 1e-6)
		require.InEpsilon(t, math.Sqrt(errorsSquared/changes), r.RoundedChange, 1e-6)
		require.Less(t, r.Rounding, 0.03)
		a, err := safetensors.OpenModel(float8Dir)
		require.NoError(t, err)
		defer a.Close()
		b, err := safetensors.OpenModel(dir)
		require.NoError(t, err)
		defer b.Close()
		require.Equal(t, a.Names(), b.Names())
		for _, name := range a.Names() {
			x, err := a.Lookup(name)
			require.NoError(t, err)
			y, err := b.Lookup(name)
			require.NoError(t, err)
			require.Equal(t, x.Shape, y.Shape, name)
			require.Equal(t, x.DType, y.DType, name)
		}
	}
}

// TestMergeFloat8Layouts: an adapter that changes nothing leaves every layout as it is.
func TestMergeFloat8Layouts(t *testing.T) {
	for _, name := range []string{"fp8-block", "fp8-block-odd", "fp8-static", "fp8-channel", "fp8-tensor"} {
		base := filepath.Join("../../testdata/quant", name)
		adapter := t.TempDir()
		writeAdapter(t, adapter, base)
		dir, r := open(t, base, adapter).merged(t, Options{})
		require.NotZero(t, r.Merged, name)
		require.Zero(t, r.Rounding, name)
		require.Equal(t, rawTensors(t, base), rawTensors(t, dir), name)

		dir, _ = open(t, base, adapter).merged(t, Options{DType: tensor.BF16})
		for name := range weightsOf(t, dir) {
			require.NotContains(t, name, "scale")
		}
	}
}

// TestRoundStacks: blocks of a stack of experts end with its matrices: values that stand for codes
// and scales are rounded to the same.
func TestRoundStacks(t *testing.T) {
	const matrices, rows, in = 3, 5, 6
	f := &model.Float8Weight{Float8Grid: model.Float8Grid{Rows: rows, In: in, Block: [2]int{2, 4}}}
	require.Equal(t, []int{3, 2}, []int{f.Down(), f.Across()})
	codes := make([]byte, matrices*rows*in)
	for i := range matrices * 3 * 2 {
		f.Scales = append(f.Scales, 0.01*float32(i+1))
	}
	for i := range codes {
		codes[i] = byte(i + 1)
		matrix, row, column := i/(rows*in), i/in%rows, i%in
		if row%2 == 0 && column%4 == 0 {
			codes[i] = 0x7e // the largest, which a block must have to keep its scale
		}
		f.Values = append(f.Values, tensor.F8E4M3ToFloat32(codes[i])*f.Scales[matrix*6+row/2*2+column/4])
		require.Equal(t, matrix*6+row/2*2+column/4, f.Index(i))
	}
	want, got := slices.Clone(f.Scales), make([]byte, len(codes))
	require.NoError(t, roundBlocks(got, f, tensor.F32))
	require.Equal(t, codes, got)
	require.Equal(t, want, f.Scales)
}

// writeAdapter writes an adapter of rank 1 on o_proj, whose product is 0 in float32.
func writeAdapter(t testing.TB, dir, base string) {
	t.Helper()
	m, err := model.Open(base)
	require.NoError(t, err)
	defer m.Close()
	var entries []safetensors.Entry
	for _, module := range m.Modules() {
		if !strings.HasSuffix(module.Name, "o_proj") {
			continue
		}
		for part, shape := range map[string][]int{"lora_A": {1, module.In}, "lora_B": {module.Out, 1}} {
			entries = append(entries, safetensors.Entry{
				Name: "base_model.model." + module.Name + "." + part + ".weight", DType: safetensors.F32, Shape: shape, Data: tensor.BytesOf(slices.Repeat([]float32{1e-30}, shape[0]*shape[1])),
			})
		}
	}
	require.NoError(t, safetensors.WriteFile(filepath.Join(dir, "adapter_model.safetensors"), entries, nil))
	writeFile(t, filepath.Join(dir, "adapter_config.json"), `{"peft_type": "LORA", "r": 1, "lora_alpha": 1, "target_modules": ["o_proj"], "task_type": "CAUSAL_LM"}`)
}

func rawTensors(t testing.TB, dir string) map[string]string {
	t.Helper()
	set, err := safetensors.OpenModel(dir)
	require.NoError(t, err)
	defer set.Close()
	all := map[string]string{}
	for _, name := range set.Names() {
		v, err := set.Lookup(name)
		require.NoError(t, err)
		all[name] = v.DType.String() + string(v.Bytes())
	}
	return all
}

// TestMergeFloat8Errors: 8-bit floats are for models that have them, and bitsandbytes' weights
// stay unmerged.
func TestMergeFloat8Errors(t *testing.T) {
	_, err := open(t, llama, llamaLoRA).write(t, t.TempDir(), Options{DType: tensor.F8E4M3})
	require.ErrorIs(t, err, ErrOptions)
	require.ErrorContains(t, err, "not stored in 8-bit floats")
}
