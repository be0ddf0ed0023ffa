package data_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/lorafuse/lorafuse/internal/data"
)

// Pieces of several documents are concatenated, and each attends only to the cache pages of its own document.
func TestAddPiece(t *testing.T) {
	var b data.Batch
	b.AddPiece([]int32{5, 6}, 0, []int32{7}, 4)
	b.AddPiece([]int32{7}, 9, []int32{9, 2, 4}, 4)
	b.AddPiece([]int32{8, 9}, 3, []int32{9, 0}, 4)
	assert.Equal(t, []int32{5, 6, 7, 8, 9}, b.Tokens())
	assert.Equal(t, []int32{0, 1, 9, 3, 4}, b.Positions())
	assert.Equal(t, []int32{28, 29, 17, 39, 0}, b.CacheRows())
	assert.Equal(t, []int32{7, 9, 2, 4, 9, 0}, b.Pages())
	assert.Equal(t, []int32{0, 0, 4, 16, 16}, b.KeyStart())
	assert.Equal(t, []int32{1, 2, 14, 20, 21}, b.KeyEnd())
	assert.Equal(t, []int32{0, 2, 3, 5}, b.Starts)

	b.Pad(4, 6) // it is larger already
	assert.Equal(t, []int32{5, 6, 7, 8, 9}, b.Tokens())
	b.Pad(7, 8)
	assert.Equal(t, []int32{5, 6, 7, 8, 9, 0, 0}, b.Tokens())
	assert.Equal(t, []int32{0, 1, 9, 3, 4, 0, 0}, b.Positions())
	assert.Equal(t, []int32{28, 29, 17, 39, 0, -1, -1}, b.CacheRows(), "padding is not stored")
	assert.Equal(t, []int32{7, 9, 2, 4, 9, 0, 0, 0}, b.Pages())
	assert.Equal(t, []int32{0, 0, 4, 16, 16, 0, 0}, b.KeyStart())
	assert.Equal(t, []int32{1, 2, 14, 20, 21, 0, 0}, b.KeyEnd(), "padding sees nothing")
	assert.Equal(t, []int32{data.Ignore, data.Ignore}, b.Labels()[5:])
	b.Reset()
	assert.Empty(t, b.CacheRows())
	assert.Empty(t, b.Pages())
}
