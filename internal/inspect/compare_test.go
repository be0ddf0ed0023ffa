package inspect

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/lorafuse/lorafuse/safetensors"
)

// difference compares one pair.
func difference(t testing.TB, a, b safetensors.Entry) (Difference, error) {
	a.Name, b.Name = "x", "x"
	d, err := Compare(t.Context(), []Pair{{view(t, file(t, a), "x"), view(t, file(t, b), "x")}}, Options{})
	if err != nil {
		return Difference{}, err
	}
	return d[0], nil
}

func entry(d safetensors.DType, data []byte, shape ...int) safetensors.Entry {
	return safetensors.Entry{DType: d, Shape: shape, Data: data}
}

func TestCompareKinds(t *testing.T) {
	inf, nan := float32(math.Inf(1)), float32(math.NaN())
	for name, c := range map[string]struct {
		a, b safetensors.Entry
		want Difference
	}{
		"equal":       {entry(safetensors.F32, le[float32](1, nan, inf), 3), entry(safetensors.F32, le[float32](1, nan, inf), 3), Difference{}},
		"zeros":       {entry(safetensors.F32, le[float32](0), 1), entry(safetensors.F32, []byte{0, 0, 0, 0x80}, 1), Difference{}},
		"other NaN":   {entry(safetensors.F32, []byte{0, 0, 0xc0, 0x7f}, 1), entry(safetensors.F32, []byte{1, 0, 0xc0, 0xff}, 1), Difference{}},
		"floats":      {entry(safetensors.F32, le[float32](1, -4, 3, 0.5), 2, 2), entry(safetensors.F32, le[float32](1, -4, 2.5, 1), 2, 2), Difference{2, 0.5, 0.125, []int{1, 0}, "3", "2.5"}},
		"scalar":      {entry(safetensors.F32, le[float32](2)), entry(safetensors.F32, le[float32](1)), Difference{1, 1, 0.5, []int{}, "2", "1"}},
		"NaN alone":   {entry(safetensors.F32, le[float32](2, 1), 2), entry(safetensors.F32, le[float32](nan, 1), 2), Difference{1, math.Inf(1), math.Inf(1), []int{0}, "2", "NaN"}},
		"two signs":   {entry(safetensors.F32, le[float32](inf), 1), entry(safetensors.F32, le[float32](-inf), 1), Difference{1, math.Inf(1), math.Inf(1), []int{0}, "+Inf", "-Inf"}},
		"from zero":   {entry(safetensors.F32, le[float32](0), 1), entry(safetensors.F32, le[float32](1), 1), Difference{1, 1, math.Inf(1), []int{0}, "0", "1"}},
		"tiny":        {entry(safetensors.F64, le(5e-324), 1), entry(safetensors.F64, le(1.), 1), Difference{1, 1, math.MaxFloat64, []int{0}, "4.9406564584124654e-324", "1"}},
		"too far":     {entry(safetensors.F64, le(-1e308), 1), entry(safetensors.F64, le(1e308), 1), Difference{1, math.Inf(1), math.Inf(1), []int{0}, "-1e+308", "1e+308"}},
		"types":       {entry(safetensors.BF16, []byte{0xc0, 0x3f}, 1), entry(safetensors.F16, []byte{0, 0x3e}, 1), Difference{}},
		"F64 and F32": {entry(safetensors.F64, le(1e-300), 1), entry(safetensors.F32, le[float32](0), 1), Difference{1, 1e-300, 1, []int{0}, "1e-300", "0"}},
		"I32 and F16": {entry(safetensors.I32, le[int32](-7), 1), entry(safetensors.F16, []byte{0, 0xc7}, 1), Difference{}},
		"large": {
			entry(safetensors.I64, le[int64](1<<60, math.MinInt64), 2), entry(safetensors.I64, le[int64](1<<60+1, math.MinInt64), 2),
			Difference{1, 1, 1. / (1 << 63), []int{0}, "1152921504606846976", "1152921504606846977"},
		},
		"I64 and U64":  {entry(safetensors.I64, le[int64](-1, 5), 2), entry(safetensors.U64, le[uint64](math.MaxUint64, 5), 2), Difference{1, 1 << 64, 1 << 64 / 5., []int{0}, "-1", "18446744073709551615"}},
		"U64 and I8":   {entry(safetensors.U64, le[uint64](3, 200), 2), entry(safetensors.I8, []byte{3, 200}, 2), Difference{1, 256, 256. / 200, []int{1}, "200", "-56"}},
		"I64 and F32":  {entry(safetensors.I64, le[int64](3), 1), entry(safetensors.F32, le[float32](3), 1), Difference{}},
		"U64 and F64":  {entry(safetensors.U64, le[uint64](1<<63), 1), entry(safetensors.F64, le[float64](1<<63), 1), Difference{}},
		"I64 and bool": {entry(safetensors.I64, le[int64](1, 0), 2), entry(safetensors.Bool, []byte{1, 0}, 2), Difference{}},
		"I64 and rest": {entry(safetensors.I64, le[int64](-3, 65000), 2), entry(safetensors.I16, le[int16](-3, -536), 2), Difference{1, 65536, 65536. / 65000, []int{1}, "65000", "-536"}},
		"I64 and U16":  {entry(safetensors.I64, le[int64](65000), 1), entry(safetensors.U16, le[uint16](65000), 1), Difference{}},
		"I64 and I32":  {entry(safetensors.I64, le[int64](-70000), 1), entry(safetensors.I32, le[int32](-70000), 1), Difference{}},
		"I64 and U32":  {entry(safetensors.I64, le[int64](1<<32-1), 1), entry(safetensors.U32, le[uint32](math.MaxUint32), 1), Difference{}},
		"I64 and U8":   {entry(safetensors.I64, le[int64](200), 1), entry(safetensors.U8, []byte{200}, 1), Difference{}},
		"F8":           {entry(safetensors.F8E4M3, []byte{0x38, 0x7e}, 2), entry(safetensors.F8E5M2, []byte{0x3c, 0x7b}, 2), Difference{1, 57344 - 448, (57344 - 448) / 448., []int{1}, "448", "57344"}},
		"complex":      {entry(safetensors.C64, le[float32](3, 4, 1, nan), 2), entry(safetensors.C64, le[float32](0, 0, 1, nan), 2), Difference{1, 5, 1, []int{0}, "(3+4i)", "(0+0i)"}},
		"complex NaN":  {entry(safetensors.C64, le[float32](3, 4), 1), entry(safetensors.C64, le[float32](3, nan), 1), Difference{1, math.Inf(1), math.Inf(1), []int{0}, "(3+4i)", "(3+NaNi)"}},
		"empty":        {entry(safetensors.F32, nil, 0, 3), entry(safetensors.F32, nil, 0, 3), Difference{}},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := difference(t, c.a, c.b)
			require.NoError(t, err)
			assert.Equal(t, c.want, got)
		})
	}
	// Equal bytes of a type without known values are equal.
	got, err := difference(t, entry(safetensors.F4, []byte{0x51}, 2), entry(safetensors.F4, []byte{0x51}, 2))
	require.NoError(t, err)
	assert.Zero(t, got)
	_, err = difference(t, entry(safetensors.F8E8M0, []byte{1}, 1), entry(safetensors.F8E8M0, []byte{2}, 1))
	assert.ErrorIs(t, err, ErrDType)
	assert.ErrorContains(t, err, "F8_E8M0: cannot be compared as numbers")
	_, err = difference(t, entry(safetensors.F8E4M3FNUZ, []byte{0x40}, 1), entry(safetensors.F32, le[float32](1), 1))
	assert.ErrorIs(t, err, ErrDType)
	_, err = difference(t, entry(safetensors.C64, le[float32](1, 0), 1), entry(safetensors.F32, le[float32](1), 1))
	assert.ErrorIs(t, err, ErrDType)
	_, err = difference(t, entry(safetensors.U8, []byte{1, 2}, 2), entry(safetensors.U8, []byte{1, 2}, 1, 2))
	assert.ErrorIs(t, err, ErrShape)
}

// TestCompareProperty compares with the plain computation, with equal runs and
// changes anywhere in tensors of several blocks.
func TestCompareProperty(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		d := rapid.SampledFrom([]safetensors.DType{safetensors.BF16, safetensors.F32, safetensors.F64, safetensors.I8, safetensors.F8E4M3}).Draw(r, "dtype")
		n := rapid.SampledFrom([]int{1, 7, compareBlock, 3*compareBlock + 5}).Draw(r, "n")
		a := make([]byte, n*d.Bits()/8)
		fillRandom(a, d, rapid.Uint64().Draw(r, "seed"), "normal")
		b := append([]byte(nil), a...)
		for range rapid.IntRange(0, 4).Draw(r, "changes") {
			b[rapid.IntRange(0, len(b)-1).Draw(r, "at")] ^= byte(rapid.IntRange(0, 255).Draw(r, "bits"))
		}
		got, err := difference(t, entry(d, a, n), entry(d, b, n))
		require.NoError(r, err)
		require.Equal(r, plainDifference(decoded(t, a, d), decoded(t, b, d), got), got)
	})
}

// plainDifference leaves the texts to others.
func plainDifference(x, y []float64, like Difference) Difference {
	want := Difference{A: like.A, B: like.B}
	largest := 0.0
	for i, p := range x {
		if abs := math.Abs(p); abs > largest && !math.IsInf(abs, 0) {
			largest = abs
		}
		q := y[i]
		if p == q || math.IsNaN(p) && math.IsNaN(q) {
			continue
		}
		d := math.Abs(p - q)
		if math.IsNaN(d) || math.IsInf(d, 0) {
			d = math.Inf(1)
		}
		if want.Differ++; want.Differ == 1 || d > want.MaxAbs {
			want.MaxAbs, want.At = d, []int{i}
		}
	}
	if want.Differ > 0 {
		want.Relative = want.MaxAbs / largest
		if !math.IsInf(want.MaxAbs, 0) && largest > 0 {
			want.Relative = min(want.Relative, math.MaxFloat64)
		}
	}
	return want
}

// TestCompareChunks: a difference in the last of several chunks is found, with
// the largest value in a part that is equal, by any number of threads.
func TestCompareChunks(t *testing.T) {
	n := chunkSize + 1000
	a := make([]byte, 2*n)
	fillRandom(a, safetensors.BF16, 3, "normal")
	a[0], a[1] = 0x80, 0x42 // 64
	b := append([]byte(nil), a...)
	a[2*n-2], a[2*n-1] = 0x80, 0x3f // 1
	b[2*n-2], b[2*n-1] = 0x00, 0x3f // 0.5
	b[chunkSize/2] ^= 1
	f, g := file(t, safetensors.Entry{Name: "x", DType: safetensors.BF16, Shape: []int{n}, Data: a}), file(t, safetensors.Entry{Name: "x", DType: safetensors.BF16, Shape: []int{n}, Data: b})
	for _, threads := range []int{1, 3} {
		last := int64(0)
		got, err := Compare(t.Context(), []Pair{{view(t, f, "x"), view(t, g, "x")}, {view(t, f, "x"), view(t, f, "x")}}, Options{
			Threads:  threads,
			Progress: func(done, _ int64) { last = done },
		})
		require.NoError(t, err)
		assert.EqualValues(t, 4*n, last)
		assert.Equal(t, []Difference{{2, 0.5, 0.5 / 64, []int{n - 1}, "1", "0.5"}, {}}, got)
	}
}

func TestCompareStops(t *testing.T) {
	f := file(t, safetensors.Entry{Name: "x", DType: safetensors.U8, Shape: []int{3}, Data: []byte{1, 2, 3}})
	x := view(t, f, "x")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := Compare(ctx, []Pair{{x, x}}, Options{})
	assert.ErrorIs(t, err, context.Canceled)
	require.NoError(t, f.Close())
	_, err = Compare(t.Context(), []Pair{{x, x}}, Options{})
	assert.ErrorIs(t, err, safetensors.ErrClosed)
}

// BenchmarkCompare is the speed for tensors that are equal, and that differ
// everywhere.
func BenchmarkCompare(b *testing.B) {
	for _, d := range []safetensors.DType{safetensors.BF16, safetensors.F32} {
		for _, equal := range []bool{true, false} {
			x := make([]byte, 64<<20)
			fillRandom(x, d, 1, "normal")
			y := append([]byte(nil), x...)
			if !equal {
				rng := rand.New(rand.NewPCG(1, 2))
				for i := 0; i < len(y); i += d.Bits() / 8 {
					y[i] ^= byte(rng.Uint32())
				}
			}
			e := safetensors.Entry{Name: "x", DType: d, Shape: []int{len(x) * 8 / d.Bits()}, Data: x}
			f := file(b, e)
			e.Data = y
			pair := Pair{view(b, f, "x"), view(b, file(b, e), "x")}
			b.Run(fmt.Sprint(d, "/equal=", equal), func(b *testing.B) {
				b.SetBytes(int64(len(x)))
				for b.Loop() {
					if _, err := Compare(b.Context(), []Pair{pair}, Options{Threads: 1}); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
