package convert

import (
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/lorafuse/lorafuse/safetensors"
	"github.com/lorafuse/lorafuse/tensor"
)

// TestVerify: each byte that is not what was written is noticed, and so is
// another tensor, type or shape.
func TestVerify(t *testing.T) {
	dir := t.TempDir()
	in := write(t, filepath.Join(dir, "in.safetensors"), nil,
		safetensors.Entry{Name: "x", DType: safetensors.F32, Shape: []int{2}, Data: le[float32](1, 2)},
		safetensors.Entry{Name: "y", DType: safetensors.U8, Shape: []int{3}, Data: []byte{1, 2, 3}})
	w, err := newWriter(t.Context(), open(t, in), Options{DType: tensor.BF16})
	require.NoError(t, err)
	out := filepath.Join(dir, "out.safetensors")
	require.NoError(t, safetensors.WriteFile(out, w.entries(), nil))
	require.NoError(t, w.verify(out))
	raw := []byte(readFile(t, out))
	for i := len(raw) - 7; i < len(raw); i++ {
		broken := append([]byte(nil), raw...)
		broken[i] ^= 1
		require.NoError(t, os.WriteFile(out, broken, 0o666))
		err := w.verify(out)
		require.ErrorIs(t, err, ErrVerify, i)
		assert.False(t, w.result.Verified)
	}
	for _, entries := range [][]safetensors.Entry{
		{{Name: "x", DType: safetensors.BF16, Shape: []int{2}, Data: []byte{0x80, 0x3f, 0, 0x40}}},
		{{Name: "x", DType: safetensors.BF16, Shape: []int{2, 1}, Data: []byte{0x80, 0x3f, 0, 0x40}}, {Name: "y", DType: safetensors.U8, Shape: []int{3}, Data: []byte{1, 2, 3}}},
		{{Name: "x", DType: safetensors.F16, Shape: []int{2}, Data: []byte{0x80, 0x3f, 0, 0x40}}, {Name: "y", DType: safetensors.U8, Shape: []int{3}, Data: []byte{1, 2, 3}}},
	} {
		require.NoError(t, safetensors.WriteFile(out, entries, nil))
		assert.ErrorIs(t, w.verify(out), ErrVerify)
	}
	require.NoError(t, safetensors.WriteFile(out, []safetensors.Entry{{Name: "x", DType: safetensors.U8, Shape: []int{1}, Data: []byte{1}}, {Name: "z", DType: safetensors.U8, Shape: []int{1}, Data: []byte{1}}}, nil))
	assert.Error(t, w.verify(out))
	assert.Error(t, w.verify(filepath.Join(dir, "gone.safetensors")))
	w.options.Unverified = true
	require.NoError(t, w.verify(out))
}

// TestWrongRounding: a neighbour of the nearest number is refused.
func TestWrongRounding(t *testing.T) {
	target := func(from, to tensor.DType) *target {
		return &target{from: from, to: to, rounding: rounding{precision: precisions[to]}}
	}
	for _, c := range []struct {
		x    float32
		bits uint16
		ok   bool
	}{
		{1, 0x3f80, true}, {1, 0x3f81, false}, {1.003, 0x3f80, true}, {1.003, 0x3f81, false}, {1.005, 0x3f81, true},
		{float32(math.NaN()), 0x7fc0, true}, {float32(math.NaN()), 0x3f80, false}, {1, 0x7fc0, false}, {1, 0x7f80, false},
		{float32(math.Inf(1)), 0x7f80, true}, {float32(math.Inf(1)), 0xff80, false}, {math.MaxFloat32, 0x7f80, true},
		{1e-45, 0, true}, {-1e-45, 0x8000, true}, {1e-38, 0, false},
	} {
		_, err := new(measure).compare(target(tensor.F32, tensor.BF16), le(c.x), le(c.bits))
		assert.Equal(t, c.ok, err == nil, "%v %#x: %v", c.x, c.bits, err)
		if !c.ok {
			assert.ErrorIs(t, err, ErrVerify)
		}
	}
	_, err := new(measure).compare(target(tensor.F64, tensor.F32), le(1+1e-9), le[float32](1))
	assert.NoError(t, err)
	_, err = new(measure).compare(target(tensor.F64, tensor.F32), le(1+1e-6), le[float32](1))
	assert.ErrorIs(t, err, ErrVerify)
	_, err = new(measure).compare(target(tensor.F32, tensor.F64), le[float32](1.1), le(float64(float32(1.1))))
	assert.NoError(t, err)
}

// TestRoundingProperty: what the conversions do, of any numbers between any two
// types, is within the bounds, and measured as one by one.
func TestRoundingProperty(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		from, to := rapid.SampledFrom(Types()).Draw(r, "from"), rapid.SampledFrom(Types()).Draw(r, "to")
		in := rapid.SliceOfN(rapid.Byte(), 8, 800).Draw(r, "bytes")
		in = in[:len(in)/8*8]
		n := len(in) / from.Size()
		out := make([]byte, n*to.Size())
		require.NoError(r, tensor.Convert(out, to, in, from))
		target := &target{from: from, to: to, rounding: rounding{precision: precisions[to]}}
		var m measure
		got, err := m.compare(target, in, out)
		require.NoError(r, err)
		a, b := make([]float64, n), make([]float64, n)
		require.NoError(r, m.widen(a, in, from))
		require.NoError(r, m.widen(b, out, to))
		var want rounding
		for i, x := range a {
			y := b[i]
			switch {
			case x != x, x == y && y-y != 0:
			case y-y != 0, math.Abs(x) > got.precision.limit():
				want.overflow++
			default:
				want.most, want.largest = max(want.most, math.Abs(x-y)), max(want.largest, math.Abs(x))
				if x != 0 && y == 0 {
					want.underflow++
				}
			}
		}
		want.precision = got.precision
		require.Equal(r, want, got)
	})
}
