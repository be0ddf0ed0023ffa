package ir

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/lorafuse/lorafuse/tensor"
)

// Attention's work depends on the visible pairs. From shapes alone, the queries are assumed to be the last tokens of
// one sequence.
func TestAttentionCost(t *testing.T) {
	const heads, kv, dim = 4, 2, 8
	for _, c := range []struct {
		name                string
		queries, keys, wind int
		pairs               int
	}{
		{"one text", 5, 5, 0, 15},
		{"one token behind a cache", 1, 9, 0, 9},
		{"three tokens behind a cache", 3, 9, 0, 7 + 8 + 9},
		{"a window", 5, 5, 2, 1 + 2 + 2 + 2 + 2},
		{"more queries than keys", 3, 2, 0, 2 + 1},
	} {
		a := AttentionAttr{Heads: heads, KVHeads: kv, HeadDim: dim, Scale: 1, Window: c.wind}
		q, k, ids := mat(c.queries, heads*dim), mat(c.keys, kv*dim), Type{tensor.I32, ShapeOf(c.queries)}
		outs, err := Def(Attention).Infer(a, []Type{q, k, k, ids, ids})
		require.NoError(t, err)
		flops, bytes := Cost(Attention, a, []Type{q, k, k, ids, ids}, outs, []int{0})
		assert.Equal(t, 2*2*c.pairs*heads*dim, flops, c.name)
		assert.Equal(t, 4*(2*c.queries*heads*dim+2*c.keys*kv*dim+2*c.queries+c.queries*heads), bytes, c.name)
		back, _ := Cost(AttentionGrad, a, []Type{q, q, k, k, q, outs[1], ids, ids}, []Type{q, k, k}, []int{0})
		assert.Equal(t, 5*2*c.pairs*heads*dim, back, c.name)
	}
	a := AttentionAttr{Heads: heads, KVHeads: kv, HeadDim: dim, Scale: 1, Page: 4}
	q, pool, ids := mat(1, heads*dim), mat(4000, kv*dim), Type{tensor.I32, ShapeOf(1)}
	flops, bytes := Cost(Attention, a, []Type{q, pool, pool, ids, ids, {tensor.I32, ShapeOf(3)}}, []Type{q, mat(1, heads)}, []int{0})
	assert.Equal(t, 2*2*12*heads*dim, flops, "keys in pages are those of the page table")
	assert.Equal(t, 4*(2*heads*dim+2*12*kv*dim+2+3+heads), bytes, "only rows of the listed pages are read")
}

func TestAttentionPairs(t *testing.T) {
	assert.Equal(t, 1+2+3+1+2, AttentionAttr{}.Pairs([]int32{0, 0, 0, 3, 3}, []int32{1, 2, 3, 4, 5}), "two texts in one axis")
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(0, 12).Draw(t, "queries")
		lo := rapid.SliceOfN(rapid.Int32Range(0, 20), n, n).Draw(t, "lo")
		hi := rapid.SliceOfN(rapid.Int32Range(0, 20), n, n).Draw(t, "hi")
		a := AttentionAttr{Window: rapid.IntRange(0, 8).Draw(t, "window")}
		want := 0
		for i := range n {
			for j := lo[i]; j < hi[i]; j++ {
				if a.Window == 0 || j >= hi[i]-int32(a.Window) {
					want++
				}
			}
		}
		require.Equal(t, want, a.Pairs(lo, hi))
	})
}

// Only the rows that are read from or written to a table are counted, not the table.
func TestRowsCost(t *testing.T) {
	table, ids := Type{tensor.BF16, ShapeOf(1000, 8)}, Type{tensor.I32, ShapeOf(3)}
	_, bytes := Cost(GatherRows, nil, []Type{table, ids}, []Type{mat(3, 8)}, []int{0})
	assert.Equal(t, 2*3*8+4*3+4*3*8, bytes)
	_, bytes = Cost(UpdateRows, nil, []Type{mat(1000, 8), mat(3, 8), {tensor.I32, ShapeOf(1)}}, []Type{mat(1000, 8)}, []int{0})
	assert.Equal(t, 2*4*3*8+4, bytes)
}
