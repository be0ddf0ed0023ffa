package philox

import (
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestPermutationIsBijection(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.Uint64Range(0, 3000).Draw(t, "n")
		p := NewPermutation(n, rapid.Uint64().Draw(t, "seed"), rapid.Uint32().Draw(t, "epoch"))
		seen := make([]bool, n)
		for i := range n {
			j := p.At(i)
			require.Less(t, j, n)
			require.False(t, seen[j], "%d twice", j)
			seen[j] = true
		}
	})
}

func TestPermutationHuge(t *testing.T) {
	for _, n := range []uint64{1 << 40, 1<<63 + 5, math.MaxUint64} {
		p := NewPermutation(n, 3, 4)
		assert.Equal(t, n, p.Len())
		seen := map[uint64]bool{}
		for i := range uint64(1000) {
			j := p.At(i)
			require.Less(t, j, n)
			require.False(t, seen[j])
			seen[j] = true
		}
		assert.Equal(t, n, p.At(n), "out of range comes back")
	}
}

// All orders of a small set appear, about equally often: chi-square with 23
// degrees of freedom stays below its 99.99 % point, 57.
func TestPermutationIsUniformOnSmallSets(t *testing.T) {
	const draws = 24_000
	count := map[[4]uint64]int{}
	for seed := range uint64(draws) {
		p := NewPermutation(4, seed, 0)
		count[[4]uint64{p.At(0), p.At(1), p.At(2), p.At(3)}]++
	}
	require.Len(t, count, 24)
	chi := 0.0
	for _, c := range count {
		d := float64(c) - draws/24.0
		chi += d * d / (draws / 24.0)
	}
	assert.Less(t, chi, 57.0)
}

// The thing at each place is uniform, and neighbours do not stay neighbours.
func TestPermutationMixes(t *testing.T) {
	const n = 37
	var count [n][n]int
	neighbours := 0
	const epochs = 3000
	for e := range uint32(epochs) {
		p := NewPermutation(n, 5, e)
		for i := range uint64(n) {
			count[i][p.At(i)]++
			if i > 0 && p.At(i) == p.At(i-1)+1 {
				neighbours++
			}
		}
	}
	chi := 0.0
	for i := range count {
		for _, c := range count[i] {
			d := float64(c) - epochs/float64(n)
			chi += d * d / (epochs / float64(n))
		}
	}
	// (n-1)² = 1296 degrees of freedom, standard deviation 51.
	assert.InDelta(t, 1296, chi, 5*51)
	assert.InDelta(t, epochs*(n-1.0)/n, neighbours, 300)
}

func TestPermutationDependsOnSeedAndEpoch(t *testing.T) {
	same := func(a, b Permutation) int {
		k := 0
		for i := range uint64(1000) {
			if a.At(i) == b.At(i) {
				k++
			}
		}
		return k
	}
	p := NewPermutation(1000, 1, 1)
	assert.Less(t, same(p, NewPermutation(1000, 1, 2)), 15)
	assert.Less(t, same(p, NewPermutation(1000, 2, 1)), 15)
	assert.Less(t, same(p, NewPermutation(1000, 1+1<<32, 1)), 15)
	assert.Equal(t, 1000, same(p, NewPermutation(1000, 1, 1)))
}
