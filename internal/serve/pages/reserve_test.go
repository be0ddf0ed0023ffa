package pages

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// Reserved pages are used by the next tokens, are not shared, and are free again when the text is released.
func TestReserve(t *testing.T) {
	pool, err := New(Options{Pages: 4, Rows: 2})
	require.NoError(t, err)
	x := pool.Begin(Root{}, nil)
	require.True(t, x.Reserve(3))
	require.Equal(t, 2, pool.Stats().Used)
	require.True(t, x.Reserve(1), "there are enough")
	require.Equal(t, 2, pool.Stats().Used)
	reserved := append([]int32(nil), x.Pages()...)
	_, err = x.Append(1, 2, 3)
	require.NoError(t, err)
	require.Equal(t, reserved, x.Pages())
	require.True(t, x.Reserve(2))
	require.Len(t, x.Pages(), 3)
	require.False(t, x.Reserve(6), "five pages are needed")
	require.Equal(t, 3, pool.Stats().Used)

	require.NoError(t, x.Commit(3))
	y, err := x.Fork()
	require.NoError(t, err)
	require.Equal(t, x.Pages()[:2], y.Pages())
	require.False(t, y.Reserve(1), "rows of the shared page must be copied")
	c, err := x.Append(4, 5)
	require.NoError(t, err)
	require.Equal(t, 1, c.Rows)
	require.Equal(t, reserved[0], x.Pages()[0])
	require.NotEqual(t, reserved[1], x.Pages()[1])
	require.Equal(t, reserved[:2], y.Pages())
	require.Equal(t, 4, pool.Stats().Used)
	require.True(t, y.Reserve(1), "the page is its own now")
	_, err = y.Append(6)
	require.NoError(t, err)

	require.True(t, y.Reserve(0))
	x.Release()
	require.False(t, x.Reserve(1))
	y.Release()
	require.Zero(t, pool.Stats().Used)
}
