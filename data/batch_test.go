package data_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/lorafuse/lorafuse/data"
)

// Pieces of several documents lie one behind the other, and each sees the rows of a cache
// that its own document has.
func TestAddPiece(t *testing.T) {
	var b data.Batch
	b.AddPiece([]int32{5, 6}, 32, 0)
	b.AddPiece([]int32{7}, 0, 9)
	b.AddPiece([]int32{8, 9}, 64, 3)
	assert.Equal(t, []int32{5, 6, 7, 8, 9}, b.Tokens())
	assert.Equal(t, []int32{0, 1, 9, 3, 4}, b.Positions())
	assert.Equal(t, []int32{32, 33, 9, 67, 68}, b.CacheRows())
	assert.Equal(t, []int32{32, 32, 0, 64, 64}, b.Lo())
	assert.Equal(t, []int32{33, 34, 10, 68, 69}, b.Hi())
	assert.Equal(t, []int32{0, 2, 3, 5}, b.Starts)
	b.Reset()
	assert.Empty(t, b.CacheRows())
}
