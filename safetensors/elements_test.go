package safetensors

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// swapped is the elements as a machine of the other byte order has them.
func swapped[T Element](elements []T) []T {
	other := append([]T(nil), elements...)
	data := bytesOf(other)
	size := orderedSize[T]()
	for i := 0; i < len(data); i += size {
		for a, b := i, i+size-1; a < b; a, b = a+1, b-1 {
			data[a], data[b] = data[b], data[a]
		}
	}
	return other
}

// checkElements writes and reads elements on machines of both byte orders.
func checkElements[T Element](t *rapid.T, elements []T) {
	size := binary.Size(elements)
	var numbers any = elements
	if z, ok := numbers.([]complex64); ok { // as bits: wherever it is converted, a signalling NaN becomes a quiet one
		words := make([]uint32, 2*len(z))
		copy(bytesOf(words), bytesOf(z))
		numbers = words
	}
	var want bytes.Buffer
	require.NoError(t, binary.Write(&want, binary.LittleEndian, numbers))

	// A byte before the tensor: it must not matter where it lies.
	odd := Entry{Name: "odd", DType: U8, Shape: []int{1}, Data: []byte{7}}
	for _, other := range []bool{false, true} {
		here := elements
		if other {
			here = swapped(elements)
		}
		e := entryOf("x", here, []int{len(elements)}, bigEndian != other)
		var data bytes.Buffer
		if e.Write != nil {
			require.NoError(t, e.Write(&data))
		} else {
			data.Write(e.Data)
		}
		require.True(t, bytes.Equal(want.Bytes(), data.Bytes()))

		r := append(bytes.Clone(odd.Data), data.Bytes()...)
		f, err := FromBytes(placedFile(e.DType, len(elements), size, r))
		require.NoError(t, err)
		v, err := f.Lookup("x")
		require.NoError(t, err)
		got := make([]T, len(elements))
		require.NoError(t, readInto(v, got, bigEndian != other))
		require.True(t, bytes.Equal(bytesOf(here), bytesOf(got)))
	}
}

// placedFile is a file with a byte and then the tensor "x".
func placedFile(d DType, n, size int, data []byte) []byte {
	var b bytes.Buffer
	header := `{"odd":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"x":{"dtype":"` + d.String() + `","shape":[` + strconv.Itoa(n) + `],"data_offsets":[1,` + strconv.Itoa(1+size) + `]}}`
	b.Write(binary.LittleEndian.AppendUint64(nil, uint64(len(header))))
	b.WriteString(header)
	b.Write(data)
	return b.Bytes()
}

func TestElementsOnMachinesOfEitherByteOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		raw := rapid.SliceOfN(rapid.Byte(), 0, 64).Draw(t, "raw")
		raw = raw[:len(raw)&^7]
		le := binary.LittleEndian
		var u16 []uint16
		var u32 []uint32
		var u64 []uint64
		for i := 0; i+8 <= len(raw); i += 8 {
			u16 = append(u16, le.Uint16(raw[i:]), le.Uint16(raw[i+2:]))
			u32 = append(u32, le.Uint32(raw[i:]))
			u64 = append(u64, le.Uint64(raw[i:]))
		}
		checkElements(t, raw)
		checkElements(t, u16)
		checkElements(t, u32)
		checkElements(t, u64)
		checkElements(t, cast[int8](raw))
		checkElements(t, cast[int16](u16))
		checkElements(t, cast[int32](u32))
		checkElements(t, cast[int64](u64))
		checkElements(t, cast[float32](u32))
		checkElements(t, cast[float64](u64))
		c64 := make([]complex64, len(u32)/2)
		copy(bytesOf(c64), bytesOf(u32))
		checkElements(t, c64)
	})
}

func cast[T, S interface {
	uint8 | int8 | uint16 | int16 | uint32 | int32 | uint64 | int64 | float32 | float64
}](from []S) []T {
	to := make([]T, len(from))
	for i, x := range from {
		to[i] = T(x)
	}
	return to
}

func TestReadAndEntryOf(t *testing.T) {
	long := make([]float32, 50_000) // more than one chunk of a writer that swaps
	for i := range long {
		long[i] = float32(i)
	}
	half := EntryOf("half", []uint16{0x3c00, 0xc000}, 2, 1)
	half.DType = F16
	f := mustEncode(t, []Entry{
		half,
		EntryOf("complex", []complex64{1 + 2i}),
		entryOf("long", swapped(long), []int{len(long)}, !bigEndian),
		EntryOf("none", []int64{}, 0),
	}, nil)
	got, err := Read[float32](lookup(t, f, "long"))
	require.NoError(t, err)
	assert.Equal(t, long, got)
	h, err := Read[uint16](lookup(t, f, "half"))
	require.NoError(t, err)
	assert.Equal(t, []uint16{0x3c00, 0xc000}, h)
	assert.Equal(t, []byte{0, 0x3c, 0, 0xc0}, lookup(t, f, "half").Bytes())
	z, err := Read[complex64](lookup(t, f, "complex"))
	require.NoError(t, err)
	assert.Equal(t, []complex64{1 + 2i}, z)
	none, err := Read[int64](lookup(t, f, "none"))
	require.NoError(t, err)
	assert.Empty(t, none)

	_, err = Read[int32](lookup(t, f, "long"))
	assert.ErrorIs(t, err, ErrElementType)
	assert.ErrorContains(t, err, "F32 as []int32")
	assert.ErrorIs(t, ReadInto(lookup(t, f, "complex"), make([]complex64, 2)), ErrSize)
	broken := errors.New("broken")
	assert.ErrorIs(t, entryOf("x", []int16{1}, []int{1}, true).Write(writerFunc(func([]byte) (int, error) { return 0, broken })), broken)
	v := lookup(t, f, "complex")
	require.NoError(t, f.Close())
	_, err = Read[complex64](v)
	assert.ErrorIs(t, err, ErrClosed)
	assert.ErrorIs(t, Write(io.Discard, []Entry{EntryOf("x", []int32{1, 2})}, nil), ErrSize, "a scalar is one element")
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }
