package safetensors

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestHold(t *testing.T) {
	data := fiveRows(t)
	far, err := OpenReaderAt(bytes.NewReader(data), int64(len(data)), "far")
	require.NoError(t, err)
	for _, f := range []*File{openFloats(t, 5), far} {
		v := lookup(t, f, "x")
		first, err := v.Hold()
		require.NoError(t, err)
		second, err := v.Hold()
		require.NoError(t, err)
		assert.Equal(t, floats(10), first.Bytes())
		err = f.Close()
		assert.ErrorIs(t, err, ErrInUse)
		assert.ErrorContains(t, err, "2 uses or holds")
		first.Release()
		first.Release()
		assert.Nil(t, first.Bytes())
		assert.ErrorIs(t, f.Close(), ErrInUse, "released twice counts once")
		assert.Equal(t, floats(10), second.Bytes())
		second.Release()
		assert.Zero(t, mappings(t, f.Path())-map[bool]int{true: 1}[v.InPlace()])
		require.NoError(t, f.Close())
		assert.Zero(t, mappings(t, f.Path()), "a hold leaves nothing pinned")
		_, err = v.Hold()
		assert.ErrorIs(t, err, ErrClosed)
	}
}
