package data

import (
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// packed returns the packed rows of documents in this order.
func packed(order []int, length func(doc int) int, capacity int) (rows [][]int) {
	p := newPacks(len(order), func(i int) int { return order[i] }, length, capacity)
	for r := range p.len() {
		var row []int
		p.each(r, func(doc int) { row = append(row, doc) })
		rows = append(rows, row)
	}
	return rows
}

func TestPackRows(t *testing.T) {
	lengths := []int{3, 8, 5, 2, 6, 4}
	length := func(doc int) int { return lengths[doc] }
	order := []int{0, 1, 2, 3, 4, 5}
	// Longest first into the fullest row: 8, then 6+4, then 5+3, then 2 with the latter.
	assert.Equal(t, [][]int{{0, 2, 3}, {1}, {4, 5}}, packed(order, length, 10))
	// The order of arrival decides the order of rows and within rows.
	assert.Equal(t, [][]int{{5, 4}, {3, 2, 0}, {1}}, packed([]int{5, 4, 3, 2, 1, 0}, length, 10))
	assert.Equal(t, [][]int{{0, 1, 2, 3, 4, 5}}, packed(order, length, 28))
	assert.Empty(t, packed(nil, length, 10))
	// More room than there are documents for costs nothing.
	assert.Equal(t, [][]int{{0, 1, 2, 3, 4, 5}}, packed(order, length, math.MaxInt))
	assert.Less(t, testing.AllocsPerRun(1, func() { packed(order, length, math.MaxInt) }), 100.0)
}

// TestPackProperties: each document once, no row above its capacity, and no
// two rows of a window that would fit into one.
func TestPackProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		capacity := rapid.IntRange(1, 200).Draw(t, "capacity")
		lengths := rapid.SliceOfN(rapid.IntRange(0, capacity), 1, 60).Draw(t, "lengths")
		order := rapid.Permutation(sequence(len(lengths))).Draw(t, "order")
		length := func(doc int) int { return lengths[doc] }
		rows := packed(order, length, capacity)
		require.Equal(t, rows, packed(order, length, capacity))

		var all, sums []int
		for _, row := range rows {
			sum := 0
			for _, doc := range row {
				sum += lengths[doc]
			}
			require.LessOrEqual(t, sum, capacity)
			sums, all = append(sums, sum), append(all, row...)
		}
		slices.Sort(all)
		require.Equal(t, sequence(len(lengths)), all)
		slices.Sort(sums)
		if len(sums) > 1 {
			require.Greater(t, sums[0]+sums[1], capacity)
		}
	})
}

func sequence(n int) []int {
	s := make([]int, n)
	for i := range s {
		s[i] = i
	}
	return s
}
