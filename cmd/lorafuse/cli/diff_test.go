package cli

import (
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/lorafuse/lorafuse/lora"
	"github.com/lorafuse/lorafuse/safetensors"
)

// differing runs diff on two files and gives what it found.
func differing(t testing.TB, status int, a, b string, more ...string) difference {
	r := command(t, "", append([]string{"diff", a, b, "--json"}, more...)...)
	require.Equal(t, status, r.status, r.stderr)
	return decode[difference](t, r.stdout)
}

func TestDiffValues(t *testing.T) {
	l := newLab(t)
	inf := float32(math.Inf(1))
	a := l.write("a.safetensors",
		floats("same", []float32{1, 2}, 2), floats("moved", []float32{1, -4, 3, 0.5}, 2, 2), floats("gone", []float32{1}, 1),
		floats("shape", []float32{1, 2}, 2), floats("nan", []float32{float32(math.NaN()), 1}, 2), floats("inf", []float32{inf, inf}, 2),
		floats("zero", []float32{0, 0}, 2), ints("whole", []int64{1 << 60, 7}, 2), floats("bothnan", []float32{float32(math.NaN())}, 1))
	b := l.write("b.safetensors",
		floats("same", []float32{1, 2}, 2), floats("moved", []float32{1, -4, 2.5, 0.25}, 2, 2), floats("new", []float32{1}, 1),
		floats("shape", []float32{1, 2}, 1, 2), floats("nan", []float32{2, 1}, 2), floats("inf", []float32{inf, 1}, 2),
		floats("zero", []float32{0, 1}, 2), ints("whole", []int64{1 << 60, 8}, 2), floats("bothnan", []float32{float32(math.NaN())}, 1))
	d := differing(t, ExitDifferent, a, b)
	assert.Equal(t, []string{"gone"}, d.OnlyA)
	assert.Equal(t, []string{"new"}, d.OnlyB)
	assert.Equal(t, 8, d.Compared)
	found := map[string]*tensorDiff{}
	for _, x := range d.Tensors {
		found[x.Name] = x
	}
	assert.Len(t, found, 6)
	moved := found["moved"]
	assert.EqualValues(t, 0.5, moved.MaxAbs)
	assert.EqualValues(t, 0.125, moved.Relative, "over the largest of A")
	assert.Equal(t, []int{1, 0}, moved.At)
	assert.Equal(t, []string{"3", "2.5"}, []string{moved.A, moved.B})
	assert.EqualValues(t, 2, moved.Differ)
	assert.Equal(t, [][]int{{2}, {1, 2}}, found["shape"].Shapes)
	assert.Equal(t, []int{0}, found["nan"].At)
	assert.False(t, found["nan"].MaxAbs.finite())
	assert.False(t, found["inf"].MaxAbs.finite())
	assert.EqualValues(t, 1, found["zero"].MaxAbs)
	assert.False(t, found["zero"].Relative.finite())
	assert.EqualValues(t, 1, found["whole"].MaxAbs)
	raw := command(t, "", "diff", a, b, "--json").stdout
	assert.Contains(t, raw, `"max_abs": 1,
      "relative": null,
      "at": [`)
	assert.Contains(t, raw, `"max_abs": null,`)
	assert.NotContains(t, raw, "e+308")

	d = differing(t, ExitDifferent, a, b, "--tolerance", "0.2")
	for _, x := range d.Tensors {
		assert.NotEqual(t, "moved", x.Name)
	}
	text := command(t, "", "diff", a, b)
	assert.Contains(t, text.stdout, "moved: max |a-b| 0.5, relative 0.125, at [1 0]: 3 and 2.5, 2 elements differ\n")
	assert.Contains(t, text.stdout, "zero: max |a-b| 1, none relative: a is 0 wherever it is finite, at [1]: 0 and 1, 1 elements differ\n")
	assert.NotContains(t, text.stdout, "e+308")
	assert.Contains(t, text.stdout, "shape: shapes [2] and [1 2]\n")
	assert.Contains(t, text.stdout, "nan: |a-b| is not finite, at [0]: NaN and 2, 1 elements differ\n")
	assert.Equal(t, "lorafuse: diff: "+a+" and "+b+" differ: 6 of 8 tensors, 2 in one of them alone\n", text.stderr)
}

// TestDiffNothing: tensors without elements are equal, of any number; so are two
// files without tensors.
func TestDiffNothing(t *testing.T) {
	l := newLab(t)
	a := l.write("a.safetensors", floats("none", nil, 0, 3))
	d := differing(t, ExitOK, a, a)
	assert.True(t, d.Equal)
	assert.Zero(t, d.Largest.MaxAbs)
	assert.Zero(t, d.Largest.Relative)
	b := l.write("b.safetensors")
	assert.Nil(t, differing(t, ExitOK, b, b).Largest)
	for _, tolerance := range []string{"inf", "nan", "-1"} {
		r := command(t, "", "diff", a, a, "--tolerance="+tolerance)
		assert.Equal(t, ExitUsage, r.status, tolerance)
		assert.Contains(t, r.stderr, "expected a number of 0 or more")
	}
}

// TestDiffTypes: the same numbers in another type are equal.
func TestDiffTypes(t *testing.T) {
	l := newLab(t)
	a := l.write("a.safetensors", floats("x", []float32{1.5, -2}, 2))
	b := l.write("b.safetensors", safetensors.Entry{Name: "x", DType: safetensors.BF16, Shape: []int{2}, Data: []byte{0xc0, 0x3f, 0, 0xc0}})
	assert.True(t, differing(t, ExitOK, a, b).Equal)
	f8 := l.write("f8.safetensors", safetensors.Entry{Name: "x", DType: safetensors.F8E4M3, Shape: []int{2}, Data: []byte{0x3c, 0xc1}})
	assert.Equal(t, []string{"-2", "-2.25"}, []string{differing(t, ExitDifferent, a, f8).Tensors[0].A, differing(t, ExitDifferent, a, f8).Tensors[0].B})
	z := l.write("z.safetensors", safetensors.Entry{Name: "x", DType: safetensors.C64, Shape: []int{2}, Data: make([]byte, 16)})
	assert.True(t, differing(t, ExitOK, z, z).Equal)
	assert.True(t, differing(t, ExitDifferent, a, z, "--tolerance", "9").Tensors[0].Incomparable)
	assert.Contains(t, command(t, "", "diff", a, z).stdout, "x: types F32 and C64\n")
}

func TestDiffModels(t *testing.T) {
	d := differing(t, ExitOK, goldens+"/lm/qwen2/model", goldens+"/lm/qwen2/model-sharded")
	assert.True(t, d.Equal)
	assert.Equal(t, 26, d.Compared)
	assert.Zero(t, d.Largest.MaxAbs)
}

// TestDiffSettings: two adapters with the same tensors and other scales are
// not equal; with other notes about where they come from they are.
func TestDiffSettings(t *testing.T) {
	l := newLab(t)
	a := l.adapter()
	l.setJSON(a+"/"+lora.ConfigFile, map[string]any{"base_model_name_or_path": "elsewhere", "peft_version": "0.1", "lora_dropout": 0.3, "init_lora_weights": "gaussian"})
	assert.True(t, differing(t, ExitOK, llamaLoRA, a).Equal)
	l.setJSON(a+"/"+lora.ConfigFile, map[string]any{"lora_alpha": 32, "use_rslora": true})
	d := differing(t, ExitDifferent, llamaLoRA, a)
	assert.Empty(t, d.Tensors)
	assert.Equal(t, []settingDiff{{"lora_alpha", "16", "32"}, {"use_rslora", "false", "true"}}, d.Settings)
}

// TestDiffProperty: the largest difference of any numbers is found.
func TestDiffProperty(t *testing.T) {
	l := newLab(t)
	rapid.Check(t, func(r *rapid.T) {
		n := rapid.IntRange(1, 200).Draw(r, "n")
		x := rapid.SliceOfN(rapid.Float32(), n, n).Draw(r, "x")
		y := append([]float32{}, x...)
		for _, i := range rapid.SliceOfN(rapid.IntRange(0, n-1), 0, 3).Draw(r, "changed") {
			y[i] = rapid.Float32().Draw(r, "y")
		}
		a, b := l.write("a.safetensors", floats("x", x, n)), l.write("b.safetensors", floats("x", y, n))
		d := command(t, "", "diff", a, b, "--json")
		got := decode[difference](t, d.stdout)
		want, differ := 0.0, 0
		for i := range x {
			if d := math.Abs(float64(x[i]) - float64(y[i])); d > 0 {
				want, differ = max(want, d), differ+1
			}
		}
		assert.Equal(r, differ > 0, d.status == ExitDifferent)
		assert.EqualValues(r, want, got.Largest.MaxAbs)
		if differ > 0 {
			assert.EqualValues(r, differ, got.Tensors[0].Differ)
		}
	})
}

// TestPacked: elements that share bytes are listed, copied and compared as bytes.
func TestPacked(t *testing.T) {
	l := newLab(t)
	packed := func(name string, code byte) string {
		return l.write(name, safetensors.Entry{Name: "x", DType: safetensors.F4, Shape: []int{2}, Data: []byte{code}})
	}
	a := packed("a.safetensors", 0xc3)
	assert.True(t, differing(t, ExitOK, a, packed("b.safetensors", 0xc3)).Equal)
	r := command(t, "", "diff", a, packed("c.safetensors", 0xc4))
	assert.Equal(t, ExitUsage, r.status)
	assert.Contains(t, r.stderr, `tensor "x": F4: cannot be compared as numbers`)
	assert.Contains(t, succeed(t, "inspect", a, "--stats"), "F4")
	succeed(t, "convert", a, l.path("d.safetensors"), "--dtype", "bf16")
	assert.True(t, differing(t, ExitOK, a, l.path("d.safetensors")).Equal)
}
