package tensor

import (
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestDTypeNames(t *testing.T) {
	for _, d := range numbers {
		got, err := ParseDType(d.String())
		require.NoError(t, err)
		assert.Equal(t, d, got)
		assert.NotZero(t, d.Bits(), d)
	}
	assert.Equal(t, 8, F64.Size())
	assert.Zero(t, DType(99).Bits())
	for _, s := range []string{"", "f32", "INVALID", "F33", "F4", "F6_E2M3", "F8_E8M0", "F8_E4M3FNUZ"} {
		_, err := ParseDType(s)
		assert.Error(t, err, s)
	}
	assert.Zero(t, Invalid.Size())
	assert.Zero(t, DType(99).Size())
	assert.Equal(t, "DType(99)", DType(99).String())
	for _, d := range numbers {
		assert.Equal(t, d.String()[0] == 'F' || d == BF16, d.IsFloat(), d)
	}
}

func TestNumElements(t *testing.T) {
	for _, c := range []struct {
		shape []int
		want  int
	}{{nil, 1}, {[]int{0}, 0}, {[]int{2, 3, 4}, 24}, {[]int{math.MaxInt, 0}, 0}, {[]int{math.MaxInt, 1}, math.MaxInt}} {
		got, err := NumElements(c.shape)
		require.NoError(t, err, c.shape)
		assert.Equal(t, c.want, got)
	}
	for _, shape := range [][]int{{-1}, {0, -1}, {math.MaxInt, 2}, {math.MaxInt/2 + 1, math.MaxInt/2 + 1}} {
		_, err := NumElements(shape)
		assert.ErrorIs(t, err, ErrShape, shape)
	}
}

func TestNewAndCheck(t *testing.T) {
	x, err := New(F64, 2, 0)
	require.NoError(t, err)
	require.NoError(t, x.Check())
	x, err = New(BF16, 3)
	require.NoError(t, err)
	assert.Equal(t, make([]byte, 6), x.Data)
	assert.Equal(t, 3, x.NumElements())

	_, err = New(Invalid, 1)
	assert.ErrorIs(t, err, ErrDType)
	_, err = New(F64, math.MaxInt/8)
	assert.ErrorIs(t, err, ErrShape)
	_, err = New(F32, -1)
	assert.ErrorIs(t, err, ErrShape)
	_, err = FromFloat32s([]float32{1, 2}, 3)
	assert.ErrorIs(t, err, ErrLength)
	assert.ErrorIs(t, Tensor{}.Check(), ErrDType)
	assert.ErrorIs(t, Tensor{DType: F32, Data: make([]byte, 3)}.Check(), ErrLength)
	assert.Zero(t, Tensor{DType: F32, Shape: []int{-1}}.NumElements())
}

func TestView(t *testing.T) {
	x, err := FromFloat32s([]float32{1, -2, 0.5}, 3)
	require.NoError(t, err)
	f, err := View[float32](x)
	require.NoError(t, err)
	assert.Equal(t, []float32{1, -2, 0.5}, f)
	f[0] = 7
	got, err := x.Float32s()
	require.NoError(t, err)
	assert.Equal(t, []float32{7, -2, 0.5}, got, "a view shares the memory")

	_, err = View[int32](x)
	assert.ErrorIs(t, err, ErrDType)
	_, err = View[float32](Tensor{DType: F32, Shape: []int{2}, Data: x.Data})
	assert.ErrorIs(t, err, ErrLength)

	shifted := Tensor{DType: F32, Shape: []int{1}, Data: alignedBytes(8)[1:5]}
	_, err = View[float32](shifted)
	assert.ErrorIs(t, err, ErrAlignment)
	_, err = shifted.Float32s()
	assert.NoError(t, err, "conversions need no alignment")

	empty, err := View[float64](Tensor{DType: F64, Shape: []int{0, 5}})
	require.NoError(t, err)
	assert.Empty(t, empty)
}

func TestViewTypes(t *testing.T) {
	type check func(Tensor) error
	views := map[string]check{
		"uint8": viewError[uint8], "int8": viewError[int8], "uint16": viewError[uint16], "int16": viewError[int16],
		"uint32": viewError[uint32], "int32": viewError[int32], "uint64": viewError[uint64], "int64": viewError[int64],
		"float32": viewError[float32], "float64": viewError[float64],
	}
	goType := map[DType]string{
		Bool: "uint8", U8: "uint8", F8E5M2: "uint8", F8E4M3: "uint8", I8: "int8", U16: "uint16", F16: "uint16", BF16: "uint16", I16: "int16",
		U32: "uint32", I32: "int32", U64: "uint64", I64: "int64", F32: "float32", F64: "float64",
	}
	for _, d := range numbers {
		x, err := New(d, 4, 5)
		require.NoError(t, err)
		for name, view := range views {
			if name == goType[d] {
				assert.NoError(t, view(x), "%v as %s", d, name)
			} else {
				assert.ErrorIs(t, view(x), ErrDType, "%v as %s", d, name)
			}
		}
	}
}

func viewError[T Element](t Tensor) error {
	_, err := View[T](t)
	return err
}

func TestConvert(t *testing.T) {
	x, err := FromFloat32s([]float32{1, -2.5, 1e9, 3.0001}, 2, 2)
	require.NoError(t, err)
	h, err := x.Convert(BF16)
	require.NoError(t, err)
	assert.Equal(t, []int{2, 2}, h.Shape)
	got, err := h.Float32s()
	require.NoError(t, err)
	assert.Equal(t, []float32{1, -2.5, BF16ToFloat32(Float32ToBF16(1e9)), 3}, got)

	big := Tensor{DType: I64, Data: []byte{1, 0, 0, 0, 1, 0, 0, 0}}
	small, err := big.Convert(I32)
	require.NoError(t, err)
	assert.Equal(t, []byte{255, 255, 255, 127}, small.Data, "2^32+1 is too large")
	same, err := big.Convert(I64)
	require.NoError(t, err)
	assert.Equal(t, big.Data, same.Data, "same type: bytes are copied, not rounded")
	_, err = Tensor{DType: F32}.Convert(F16)
	assert.ErrorIs(t, err, ErrLength)
	_, err = x.Convert(Invalid)
	assert.ErrorIs(t, err, ErrDType)
}
