package data

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// TestGrouped: micro-batches are of one group and full but for one of each group, an epoch has each row once, and files
// keep their order unless they are shuffled.
func TestGrouped(t *testing.T) {
	require.Equal(t, [][]int{{1, 2}, {0, 3}, {4}}, Grouped{Groups: []int{0, 1, 1, 0, 0}, BatchSize: 2}.Batches(3))
	rapid.Check(t, func(t *rapid.T) {
		g := Grouped{
			Groups:    rapid.SliceOfN(rapid.IntRange(0, 3), 1, 30).Draw(t, "groups"),
			BatchSize: rapid.IntRange(1, 4).Draw(t, "batch"), Seed: rapid.Uint64().Draw(t, "seed"),
			Shuffle: rapid.Bool().Draw(t, "shuffle"), DropLast: rapid.Bool().Draw(t, "drop"),
		}
		epoch := rapid.IntRange(0, 5).Draw(t, "epoch")
		batches, left, short := g.Batches(epoch), [4]int{}, [4]int{}
		for _, group := range g.Groups {
			left[group]++
		}
		for _, b := range batches {
			group := g.Groups[b[0]]
			for _, row := range b {
				require.Equal(t, group, g.Groups[row])
			}
			if left[group] -= len(b); len(b) < g.BatchSize {
				short[group]++
			}
		}
		require.LessOrEqual(t, slices.Max(short[:]), 1)
		for _, n := range left {
			require.True(t, n == 0 || g.DropLast && n < g.BatchSize, n)
			require.False(t, g.DropLast && slices.Max(short[:]) > 0)
		}
		rows := slices.Concat(batches...)
		slices.Sort(rows)
		require.Len(t, slices.Compact(rows), len(rows))
		require.Equal(t, batches, g.Batches(epoch))
	})
}
