package safetensors

import (
	"bytes"
	"io"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// naiveSlice copies bit by bit.
func naiveSlice(data []byte, d DType, shape []int, spans []Span) (part []byte, whole bool) {
	var bits []byte
	index := make([]int, len(shape))
	for n := 0; ; n++ {
		inside := true
		for i, x := range index {
			inside = inside && (i >= len(spans) || spans[i].From <= x && x < spans[i].To)
		}
		if inside {
			for b := n * d.Bits(); b < (n+1)*d.Bits(); b++ {
				bits = append(bits, data[b/8]>>(b%8)&1)
			}
		}
		i := len(shape) - 1
		for ; i >= 0; i-- {
			if index[i]++; index[i] < shape[i] {
				break
			}
			index[i] = 0
		}
		if i < 0 {
			break
		}
	}
	if len(bits)%8 != 0 {
		return nil, false
	}
	part = make([]byte, len(bits)/8)
	for i, b := range bits {
		part[i/8] |= b << (i % 8)
	}
	return part, true
}

func TestSliceIsThatOfANaiveReader(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		shape := rapid.SliceOfN(rapid.IntRange(1, 6), 0, 5).Draw(t, "shape")
		e := Entry{Name: "x", DType: DType(rapid.IntRange(int(Bool), int(U64)).Draw(t, "dtype")), Shape: shape}
		if e.DType.Bits()%8 != 0 {
			e.Shape = append(e.Shape, 4*rapid.IntRange(1, 3).Draw(t, "last"))
		}
		size, err := e.Size()
		require.NoError(t, err)
		e.Data = rapid.SliceOfN(rapid.Byte(), int(size), int(size)).Draw(t, "data")
		spans := make([]Span, rapid.IntRange(0, len(e.Shape)).Draw(t, "spans"))
		for i := range spans {
			spans[i].From = rapid.IntRange(0, e.Shape[i]).Draw(t, "from")
			spans[i].To = rapid.IntRange(spans[i].From, e.Shape[i]).Draw(t, "to")
		}
		var file bytes.Buffer
		require.NoError(t, Write(&file, []Entry{e}, nil))
		near, err := FromBytes(file.Bytes())
		require.NoError(t, err)
		far, err := OpenReaderAt(bytes.NewReader(file.Bytes()), int64(file.Len()), "far")
		require.NoError(t, err)
		for _, f := range []*File{near, far} {
			v, err := f.Lookup("x")
			require.NoError(t, err)
			s, err := v.Slice(spans...)
			if err != nil {
				require.ErrorIs(t, err, ErrPartialByte)
				require.NotZero(t, e.DType.Bits()%8)
				continue
			}
			want, whole := naiveSlice(e.Data, e.DType, e.Shape, spans)
			require.True(t, whole)
			require.Equal(t, len(want), s.Len())
			got := make([]byte, s.Len())
			require.NoError(t, s.ReadInto(got))
			require.Equal(t, want, append([]byte{}, got...))
			part := s.View()
			require.Equal(t, s.Shape, append([]int{}, part.Shape...))
			require.True(t, bytes.Equal(want, part.Bytes()))
			from := rapid.IntRange(0, len(want)).Draw(t, "at")
			n := rapid.IntRange(0, len(want)-from).Draw(t, "n")
			_, err = s.ReadAt(got[:n], int64(from))
			require.NoError(t, err)
			require.Equal(t, want[from:from+n], append([]byte{}, got[:n]...))
			var b bytes.Buffer
			_, err = s.WriteTo(&b)
			require.NoError(t, err)
			require.True(t, bytes.Equal(want, b.Bytes()))
			entry := s.Entry()
			size, err := entry.Size()
			require.NoError(t, err)
			require.Equal(t, int64(len(want)), size)
		}
	})
}

func TestSliceRefuses(t *testing.T) {
	v := lookup(t, openFloats(t, 5), "x")
	for _, spans := range [][]Span{{{-1, 2}}, {{3, 2}}, {{0, 6}}, {{6, 6}}, {{0, 5}, {0, 3}}, {{0, 5}, {0, 2}, {0, 1}}} {
		_, err := v.Slice(spans...)
		assert.ErrorIs(t, err, ErrRange, spans)
		assert.ErrorContains(t, err, "[5 2]")
	}
	s, err := v.Slice(Span{1, 4}, Span{1, 2})
	require.NoError(t, err)
	assert.ErrorIs(t, s.ReadInto(make([]byte, 13)), ErrSize)
	_, err = s.ReadAt(nil, -1)
	assert.ErrorIs(t, err, ErrRange)
	n, err := s.ReadAt(make([]byte, 13), 0)
	assert.Equal(t, 12, n)
	assert.Equal(t, io.EOF, err)
	v.Shape[1] = 1000
	_, err = v.Slice()
	assert.ErrorIs(t, err, ErrSize)
	packed := mustEncode(t, []Entry{{Name: "p", DType: F4, Shape: []int{2, 4}, Data: []byte{1, 2, 3, 4}}}, nil)
	_, err = lookup(t, packed, "p").Slice(Span{0, 2}, Span{1, 3})
	assert.ErrorIs(t, err, ErrPartialByte)
	s, err = lookup(t, packed, "p").Slice(Span{0, 2}, Span{2, 4})
	require.NoError(t, err)
	assert.Equal(t, []byte{2, 4}, s.View().Bytes())
}
