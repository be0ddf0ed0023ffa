package engine_test

import (
	"math/rand/v2"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/dev/draws"
	"github.com/lorafuse/lorafuse/graph"
	"github.com/lorafuse/lorafuse/internal/data"
	"github.com/lorafuse/lorafuse/internal/engine"
	"github.com/lorafuse/lorafuse/internal/nn"
	"github.com/lorafuse/lorafuse/tensor"
)

// Sizes of TestMixedDecode: the longest text, and the rows of a page.
const longest, page = 24, 4

// TestMixedDecode: texts of several adapters that are read and continued in one batch
// over one cache, in pieces of any length and in any order, get the logits that each gets
// alone, without a cache. Their pages lie anywhere, and move.
func TestMixedDecode(t *testing.T) {
	for _, c := range mixtures {
		if filepath.Base(c.base) == "bert" {
			continue
		}
		t.Run(c.base, func(t *testing.T) {
			x := newMixture(t, c.base, backend.Options{Threads: 1, BatchInvariant: true}, casesOf(t, c.base), c.built...)
			draws.Check(t, 30, func(t *rapid.T) {
				slots := x.draw(t, 2, 12)
				texts := len(slots)
				mix := x.r.NewMultiAdapter(slots...)
				held := texts * longest / page // pages, and as many that are free
				cache := x.r.NewCache(2 * held * page)
				defer cache.Free()
				spec := engine.Spec{Bounds: map[string]int{nn.Tokens: most, nn.Documents: 12, nn.Pages: held}, Cache: cache, Page: page, Build: func(b *nn.Builder, p *graph.Program) {
					p.Result("next", x.m.Build(b).Logits(b, b.Input("last", tensor.I32, b.Axis(nn.Documents))))
				}}
				d, err := x.r.Plan(mix, spec)
				require.NoError(t, err)
				ps, err := x.r.Load(ctx, mix, nil, d)
				require.NoError(t, err)
				defer x.r.Unload(ps...)

				r := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1))
				ids, read, tables := make([][]int32, texts), make([]int, texts), make([][]int32, texts)
				var free []int32
				for _, i := range r.Perm(2 * held) {
					free = append(free, int32(i))
				}
				for i := range ids {
					for range 1 + r.IntN(longest) {
						ids[i] = append(ids[i], r.Int32N(int32(x.m.Config.VocabSize)))
					}
				}
				left := func() (n int) {
					for i := range ids {
						n += len(ids[i]) - read[i]
					}
					return n
				}
				for left() > 0 {
					var b data.Batch
					var adapters, last []int32
					var which []int
					for _, i := range r.Perm(texts) {
						n := min(1+r.IntN(1+r.IntN(8)), len(ids[i])-read[i], most-len(adapters))
						if n == 0 || r.IntN(3) == 0 {
							continue
						}
						if last := len(tables[i]) - 1; last >= 0 && r.IntN(2) == 0 {
							old := tables[i][last]
							require.NoError(t, cache.CopyRows(ctx, int(old)*page, int(free[0])*page, read[i]-last*page))
							tables[i][last], free = free[0], append(free[1:], old)
						}
						for len(tables[i])*page < read[i]+n {
							tables[i], free = append(tables[i], free[0]), free[1:]
						}
						b.AddPiece(ids[i][read[i]:read[i]+n], read[i], tables[i], page)
						adapters = append(adapters, slices.Repeat([]int32{int32(i)}, n)...)
						last, which = append(last, int32(len(adapters)-1)), append(which, i)
						read[i] += n
					}
					if len(which) == 0 {
						continue
					}
					b.SetInts(nn.Adapters, adapters)
					b.SetInts("last", last)
					require.NoError(t, ps[0].Run(ctx, mix, &b, longest))
					got := make([]float32, len(which)*x.width)
					require.NoError(t, ps[0].Read(ctx, "next", got))
					for at, i := range which {
						alone := x.says(t, slots[i], ids[i][:read[i]])
						require.Equal(t, alone[(read[i]-1)*x.width:], got[at*x.width:(at+1)*x.width], "text %d of %d up to token %d", i, texts, read[i])
					}
				}
			})
		})
	}
}
