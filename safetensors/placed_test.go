package safetensors

import (
	"bytes"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestOpenExternal(t *testing.T) {
	path := filepath.Join(t.TempDir(), "other.format")
	require.NoError(t, os.WriteFile(path, append([]byte("junk"), floats(10)...), 0o600))
	f, err := OpenExternal(path, []ExternalTensor{
		{Name: "all", DType: F32, Shape: []int{5, 2}, Offset: 4},
		{Name: "computed", DType: U8, Shape: []int{2, 2}, Reader: bytes.NewReader([]byte{1, 2, 3, 4})},
		{Name: "part", DType: F32, Shape: []int{1, 1, 1, 1, 2}, Offset: 12},
		{Name: "scalar", DType: U8},
		{Name: "empty", DType: I64, Shape: []int{0}, Offset: 44},
	}, map[string]string{"format": "pt"})
	require.NoError(t, err)
	assert.Equal(t, []string{"all", "computed", "part", "scalar", "empty"}, f.Names())
	assert.Equal(t, map[string]string{"format": "pt"}, f.Metadata())
	assert.Equal(t, floats(10), lookup(t, f, "all").Bytes())
	part := lookup(t, f, "part")
	assert.Equal(t, floats(4)[8:], part.Bytes())
	assert.Equal(t, []int{1, 1, 1, 1, 2}, part.Shape)
	_, offset, length := part.Extent()
	assert.Equal(t, []int64{12, 8}, []int64{offset, length})
	assert.Equal(t, []byte("j"), lookup(t, f, "scalar").Bytes())
	assert.Empty(t, lookup(t, f, "empty").Bytes())

	computed := lookup(t, f, "computed")
	assert.NoError(t, Advise([]*View{computed}, AdviseWillNeed))
	assert.False(t, computed.InPlace())
	assert.Equal(t, []byte{1, 2, 3, 4}, computed.Bytes())
	row, err := computed.Rows(1, 2)
	require.NoError(t, err)
	assert.Equal(t, []byte{3, 4}, row.Bytes())
	_, offset, length = row.Extent()
	assert.Equal(t, []int64{-1, 2}, []int64{offset, length})
	require.NoError(t, computed.WithBytes(func([]byte) error {
		assert.ErrorIs(t, f.Close(), ErrInUse)
		return nil
	}))
	require.NoError(t, f.Close())
	assert.Nil(t, computed.Bytes())
}

// closing is a reader that counts how often it is closed.
type closing struct {
	bytes.Reader
	closed atomic.Int32
}

func (c *closing) Close() error {
	c.closed.Add(1)
	return nil
}

// Readers that can be closed are closed with the file, and not while it may
// still read.
func TestOpenPlacedClosesReaders(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x")
	require.NoError(t, os.WriteFile(path, make([]byte, 10), 0o600))
	open := func(r *closing) *File {
		r.Reset([]byte{7})
		f, err := OpenExternal(path, []ExternalTensor{{Name: "a", DType: U8}, {Name: "b", DType: U8, Reader: r}}, nil)
		require.NoError(t, err)
		return f
	}
	var r closing
	f := open(&r)
	require.NoError(t, lookup(t, f, "b").WithBytes(func([]byte) error {
		assert.ErrorIs(t, f.Close(), ErrInUse)
		return nil
	}))
	assert.Zero(t, r.closed.Load())
	require.NoError(t, f.Close())
	require.NoError(t, f.Close())
	assert.EqualValues(t, 1, r.closed.Load())

	var lost closing
	open(&lost)
	require.Eventually(t, func() bool { runtime.GC(); return lost.closed.Load() == 1 }, time.Minute, time.Millisecond)
}

func TestOpenPlacedRefuses(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "x")
	require.NoError(t, os.WriteFile(path, make([]byte, 10), 0o600))
	for name, c := range map[string]struct {
		tensors []ExternalTensor
		want    error
	}{
		"dtype":     {[]ExternalTensor{{Name: "a"}}, ErrDType},
		"shape":     {[]ExternalTensor{{Name: "a", DType: U8, Shape: []int{-1}}}, ErrShape},
		"overflow":  {[]ExternalTensor{{Name: "a", DType: U8, Shape: []int{math.MaxInt, 4}}}, ErrOverflow},
		"half":      {[]ExternalTensor{{Name: "a", DType: F4, Shape: []int{3}}}, ErrPartialByte},
		"end":       {[]ExternalTensor{{Name: "a", DType: U8, Shape: []int{10}, Offset: 1}}, ErrTruncated},
		"empty end": {[]ExternalTensor{{Name: "a", DType: U8, Shape: []int{0}, Offset: 11}}, ErrTruncated},
		"far":       {[]ExternalTensor{{Name: "a", DType: U8, Shape: []int{math.MaxInt / 8}, Offset: math.MaxInt64}}, ErrTruncated},
		"negative":  {[]ExternalTensor{{Name: "a", DType: U8, Offset: -1}}, ErrRange},
		"twice":     {[]ExternalTensor{{Name: "a", DType: U8}, {Name: "a", DType: I8}}, ErrDuplicateTensor},
		"name":      {[]ExternalTensor{{Name: "\xff", DType: U8}}, ErrUTF8},
	} {
		_, err := OpenExternal(path, c.tensors, nil)
		assert.ErrorIs(t, err, c.want, name)
		assert.ErrorContains(t, err, path, name)
	}
	_, err := OpenExternal(dir, nil, nil)
	assert.ErrorIs(t, err, ErrNotRegular)

	require.NoError(t, os.WriteFile(path, nil, 0o600))
	f, err := OpenExternal(path, []ExternalTensor{{Name: "a", DType: U8, Reader: bytes.NewReader([]byte{7})}}, nil)
	require.NoError(t, err)
	assert.Equal(t, []byte{7}, lookup(t, f, "a").Bytes())
	assert.Nil(t, f.Metadata())
	require.NoError(t, f.Close())
}
