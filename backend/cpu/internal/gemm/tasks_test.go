package gemm

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// A task has no more columns than its block of B has room for, all columns have one, and
// where tasks may be smaller no worker has more to do for it.
func TestTasksOfColumns(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		groups, workers, rows := rapid.IntRange(1, 2000).Draw(t, "groups"), rapid.IntRange(1, 9).Draw(t, "workers"), rapid.IntRange(1, 2*fewPanels).Draw(t, "panels")
		trans, depth := rapid.Bool().Draw(t, "trans"), rapid.IntRange(1, 3000).Draw(t, "words along k")
		divided := func(smaller bool, rows int) (each, rounds int) {
			c := &Call{Pairs: []Pair{{B: Matrix{Trans: trans}, K: 1, Alpha: 1}, {}}}
			k := &kernels{panelKernels: &panelKernels{nr: 32, kc: 1024 + kcRank, smaller: smaller}}
			p := panels{job: &job{c: c, workers: workers}, kern: k, panels: rows, depth: depth}
			each = p.taskGroups(groups)
			return each, (groups + each*workers - 1) / (each * workers)
		}
		whole, wholeRounds := divided(false, rows)
		require.LessOrEqual(t, 32*whole, blockCols)
		half, halfRounds := divided(true, fewPanels+1)
		require.LessOrEqual(t, half*halfRounds, whole*wholeRounds)
		require.True(t, half == whole || 32*half >= blockCols/2, "%d groups", half)
		few, _ := divided(true, rows)
		switch {
		case rows > fewPanels || !trans:
			require.Equal(t, half, few)
		case depth <= 120: // as of attention
			require.Equal(t, whole, few)
		default:
			require.True(t, few <= 2 || 32*few*min(depth, 528) <= narrowFloats, "%d groups", few)
		}
	})
}

// 1,408 columns are four tasks of two workers, where six would leave one of them idle.
func TestEvenTasks(t *testing.T) {
	c := &Call{Pairs: []Pair{{K: 1, Alpha: 1}}}
	for _, s := range []struct{ cols, workers, want int }{{1408, 2, 352}, {2048, 2, 256}, {2048, 1, 256}, {1408, 1, 352}, {512, 2, 256}, {128, 1, 128}, {5632, 2, 256}} {
		p := panels{job: &job{c: c, workers: s.workers}, kern: &kernels{panelKernels: &panelKernels{nr: 32, smaller: true}}, panels: 100}
		require.Equal(t, s.want, 32*p.taskGroups(s.cols/32), "%+v", s)
	}
}
