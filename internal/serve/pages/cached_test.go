package pages

import (
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Others may look for pages while texts come and go: they find a number of whole pages.
func TestCachedConcurrent(t *testing.T) {
	pool, err := New(Options{Pages: 4, Rows: 2})
	require.NoError(t, err)
	texts := [][]int32{{1, 2, 3, 4, 5, 6}, {1, 2, 7, 8, 9}}
	var looking sync.WaitGroup
	for range 2 {
		looking.Go(func() {
			for i := range 1000 {
				n := pool.Cached(Root{}, texts[i%2])
				assert.Zero(t, n%2)
				assert.LessOrEqual(t, n, len(texts[i%2]))
			}
		})
	}
	for i := range 1000 {
		x := pool.Begin(Root{}, texts[i%2])
		_, err := x.Append(texts[i%2][x.Len():]...)
		require.NoError(t, err)
		require.NoError(t, x.Commit(len(texts[i%2])))
		x.Release()
	}
	looking.Wait()
	require.Equal(t, 4, pool.Cached(Root{}, texts[1]))
}
