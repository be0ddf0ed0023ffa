package inspect

import (
	"bytes"
	"errors"
	"io"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/safetensors"
)

// broken is a file on another machine that cannot be read from some byte on.
type broken struct {
	io.ReaderAt
	from int64
}

var errLine = errors.New("the line is dead")

func (b broken) ReadAt(p []byte, off int64) (int, error) {
	if off+int64(len(p)) > b.from {
		return 0, errLine
	}
	return b.ReaderAt.ReadAt(p, off)
}

// TestReaders: tensors that are not in memory give the same, and their errors.
func TestReaders(t *testing.T) {
	n := (chunkSize + 3*blockSize) / 2
	data := make([]byte, 2*n)
	fillRandom(data, safetensors.BF16, 5, "normal")
	var raw bytes.Buffer
	require.NoError(t, safetensors.Write(&raw, []safetensors.Entry{
		{Name: "x", DType: safetensors.BF16, Shape: []int{n}, Data: data}, {Name: "y", DType: safetensors.U8, Shape: []int{2}, Data: []byte{1, 2}},
	}, nil))
	here, err := safetensors.FromBytes(raw.Bytes())
	require.NoError(t, err)
	there, err := safetensors.OpenReaderAt(bytes.NewReader(raw.Bytes()), int64(raw.Len()), "far away")
	require.NoError(t, err)
	x, far := view(t, here, "x"), view(t, there, "x")
	require.False(t, far.InPlace())
	values, err := Scan(t.Context(), []*safetensors.View{x, far}, Options{Checksums: true})
	require.NoError(t, err)
	require.NoError(t, values[1].Err)
	assert.Equal(t, values[0], values[1])
	differences, err := Compare(t.Context(), []Pair{{x, far}, {far, x}}, Options{})
	require.NoError(t, err)
	assert.Equal(t, []Difference{{}, {}}, differences)

	there, err = safetensors.OpenReaderAt(broken{bytes.NewReader(raw.Bytes()), int64(raw.Len()) - 2}, int64(raw.Len()), "far away")
	require.NoError(t, err)
	values, err = Scan(t.Context(), []*safetensors.View{view(t, there, "y"), view(t, there, "x")}, Options{})
	require.NoError(t, err)
	assert.ErrorIs(t, values[0].Err, errLine)
	require.NoError(t, values[1].Err)
	_, err = Compare(t.Context(), []Pair{{view(t, there, "y"), view(t, there, "y")}}, Options{})
	assert.ErrorIs(t, err, errLine)
}

func TestComparable(t *testing.T) {
	assert.True(t, Comparable(safetensors.C64, safetensors.C64))
	assert.False(t, Comparable(safetensors.C64, safetensors.F32))
	assert.True(t, Comparable(safetensors.Bool, safetensors.F64))
	assert.False(t, Comparable(safetensors.Invalid, safetensors.F64))
}
