package attention

import (
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"runtime/debug"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/lorafuse/lorafuse/backend/cpu/internal/gemm"
	"github.com/lorafuse/lorafuse/backend/cpu/internal/pool"
)

// paged is p with its keys spread over a pool of so many pages as table says. Texts
// may share pages: what is written twice is the same. All other rows are NaN.
func (p *problem) paged(page, pages int, table []int32) *problem {
	c := *p
	c.Page, c.Pages, c.Keys = page, table, page*pages
	spread := func(from Rows) Rows {
		to := Rows{Data: make([]float32, c.Keys*from.Stride), Stride: from.Stride}
		for i := range to.Data {
			to.Data[i] = float32(math.NaN())
		}
		for j := range p.Keys {
			copy(to.from(int(table[j/page])*page+j%page, 0), from.from(j, 0)[:from.Stride])
		}
		return to
	}
	c.k, c.v = spread(p.k), spread(p.v)
	return &c
}

// text is a text of a batch: the pages that it begins with are those of the first
// text, as many as it says; queries are its last tokens.
type text struct{ shared, keys, queries int }

// batch is an attention of texts on a flat table in which each has whole pages, and
// the same with a page table of its own in a random order.
func batch(r *rand.Rand, s Spec, page int, texts []text) (flat, paged *problem) {
	var table []int32
	next, begins := int32(0), []int{}
	for i, t := range texts {
		begins = append(begins, s.Keys)
		for j := range (t.keys + page - 1) / page {
			if i > 0 && j < t.shared {
				table = append(table, table[j])
				continue
			}
			table = append(table, next)
			next++
		}
		s.Keys = len(table) * page
		for q := range t.queries {
			s.Lo = append(s.Lo, int32(begins[i]))
			s.Hi = append(s.Hi, int32(begins[i]+t.keys-t.queries+q+1))
		}
	}
	flat = newProblem(r.Uint64(), s)
	for i, t := range texts[1:] {
		for _, m := range []Rows{flat.k, flat.v} {
			copy(m.from(begins[i+1], 0)[:min(t.shared, len(table))*page*m.Stride], m.Data)
		}
	}
	spare := r.IntN(3) // pages of nobody
	order := r.Perm(int(next) + spare)
	if r.IntN(4) == 0 {
		for i := range order {
			order[i] = i
		}
	}
	for i, p := range table {
		table[i] = int32(order[p])
	}
	return flat, flat.paged(page, int(next)+spare, table)
}

// half has keys and values in bfloat16, and the queries too.
func (p *problem) half(t testing.TB) *problem {
	c := *p
	c.q, c.k, c.v = halve(t, p.q), halve(t, p.k), halve(t, p.v)
	return &c
}

// TestPages: keys in pages give the bits of the flat table, whatever the order of the
// pages and whoever shares them, for every instruction set and precision.
func TestPages(t *testing.T) {
	p := pool.New(2)
	t.Cleanup(p.Close)
	for _, isa := range gemm.Supported() {
		for _, precision := range []gemm.Elem{gemm.F32, gemm.BF16} {
			for _, invariant := range []bool{false, true} {
				g := gemm.NewISA(p, isa)
				g.SetPrecision(precision)
				e := New(p, g)
				e.SetInvariant(invariant)
				t.Run(fmt.Sprintf("%v precision %v invariant %v", isa, precision, invariant), func(outer *testing.T) {
					rapid.Check(outer, func(t *rapid.T) {
						s := Spec{KVHeads: rapid.IntRange(1, 3).Draw(t, "kv heads"), HeadDim: rapid.SampledFrom([]int{4, 16, 33}).Draw(t, "size")}
						s.QHeads = s.KVHeads * rapid.IntRange(1, 3).Draw(t, "group")
						s.Window = rapid.SampledFrom([]int{0, 0, 5, 300}).Draw(t, "window")
						s.SoftCap = rapid.SampledFrom([]float32{0, 2}).Draw(t, "cap")
						page := rapid.SampledFrom([]int{1, 2, 8, 16, 64, 512}).Draw(t, "page")
						texts := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) text {
							n := rapid.SampledFrom([]int{1, 7, 80, 600, 1100}).Draw(t, "keys")
							return text{keys: n, queries: rapid.SampledFrom([]int{1, min(n, 3), min(n, 20), min(n, 90)}).Draw(t, "queries")}
						}), 1, 3).Draw(t, "texts")
						for i := range texts {
							texts[i].shared = rapid.IntRange(0, min(texts[0].keys, texts[i].keys)/page).Draw(t, "shared")
						}
						r := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1))
						flat, paged := batch(r, s, page, texts)
						same := func(flat, paged *problem) {
							want, got := forwardOf(t, e, flat), forwardOf(t, e, paged)
							require.Equal(t, asBits(want.o.Data), asBits(got.o.Data))
							require.Equal(t, asBits(want.lse), asBits(got.lse))
						}
						same(flat, paged)
						if precision == gemm.BF16 {
							same(flat.half(outer), paged.half(outer))
						}
					})
				})
			}
		}
	}
}

func forwardOf(t require.TestingT, e *Engine, p *problem) result {
	cols := p.QHeads * p.HeadDim
	r := result{o: Rows{Data: make([]float32, p.queries()*cols), Stride: cols}, lse: make([]float32, p.queries()*p.QHeads)}
	require.NoError(t, e.Forward(&p.Spec, r.o, r.lse, p.q, p.k, p.v))
	return r
}

// TestPlace: rows that follow each other are found as such across pages.
func TestPlace(t *testing.T) {
	s := Spec{Page: 4, Pages: []int32{7, 2, 3, 4, 0}}
	for _, c := range []struct{ j, n, row, count int }{
		{0, 4, 28, 4}, {1, 9, 29, 3}, {4, 12, 8, 12}, {5, 15, 9, 11}, {7, 2, 11, 2}, {16, 4, 0, 4}, {19, 1, 3, 1},
	} {
		row, count := s.place(c.j, c.n)
		require.Equal(t, []int{c.row, c.count}, []int{row, count}, c)
	}
}

func TestPageErrors(t *testing.T) {
	e := newEngine(t, 1)
	r := rand.New(rand.NewPCG(1, 1))
	for want, spoil := range map[string]func(p *problem){
		"page 9 at 1, keys and values have 5 pages of 4 rows":  func(p *problem) { p.Pages[1] = 9 },
		"page -1 at 2, keys and values have 5 pages of 4 rows": func(p *problem) { p.Pages[2] = -1 },
		"pages of 3 rows, want a power of two":                 func(p *problem) { p.Page = 3 },
		"pages of -4 rows, want a power of two":                func(p *problem) { p.Page = -4 },
		"query 0 attends keys [0,21) of 20":                    func(p *problem) { p.Hi[0] = 21 },
		"query 1 attends keys [0,9) of 8":                      func(p *problem) { p.Pages, p.Hi = p.Pages[:2], []int32{8, 9} },
	} {
		_, p := batch(r, Spec{QHeads: 2, KVHeads: 1, HeadDim: 4}, 4, []text{{0, 19, 2}})
		p.Keys = 20
		p.k.Data, p.v.Data = p.k.Data[:20*p.k.Stride], p.v.Data[:20*p.v.Stride]
		for i := range p.Pages {
			p.Pages[i] = int32(i)
		}
		spoil(p)
		o := p.rows(nil, 2, 8)
		err := e.Forward(&p.Spec, o, make([]float32, 4), p.q, p.k, p.v)
		require.ErrorIs(t, err, ErrShape)
		require.ErrorContains(t, err, want)
	}
	_, p := batch(r, Spec{QHeads: 2, KVHeads: 1, HeadDim: 4}, 4, []text{{0, 19, 2}})
	o := p.rows(nil, 2, 8)
	require.ErrorContains(t, e.Backward(&p.Spec, Gradients{o, p.k, p.v}, o, p.q, p.k, p.v, o, make([]float32, 4)), "no gradients of keys in pages")
}

// TestReservedPagesAllocateNothing: in the first call, too.
func TestReservedPagesAllocateNothing(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	_, p := batch(r, Spec{QHeads: 2, KVHeads: 1, HeadDim: 16}, 8, []text{{0, 700, 300}, {3, 900, 1}})
	for _, p := range []*problem{p, p.half(t)} {
		out := forwardOf(t, rounding(t, 1), p)
		e := rounding(t, 1)
		e.Reserve(Sizes{Queries: p.queries(), Keys: p.keys(), Heads: p.QHeads, HeadDim: p.HeadDim, Paged: true})
		defer debug.SetGCPercent(debug.SetGCPercent(-1))
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		err := e.Forward(&p.Spec, out.o, out.lse, p.q, p.k, p.v)
		runtime.ReadMemStats(&after)
		require.NoError(t, err)
		require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(1<<10)) // the runtime's own
	}
}

// Pages cost decoding little where they are not tiny, and prompts a copy of each tile.
func BenchmarkPages(b *testing.B) {
	r := rand.New(rand.NewPCG(1, 1))
	for _, queries := range []int{1, 256} {
		for _, page := range []int{16, 64} {
			flat, paged := batch(r, Spec{QHeads: 14, KVHeads: 2, HeadDim: 64}, page, []text{{0, 4096, queries}})
			for name, p := range map[string]*problem{"flat": flat, "paged": paged} {
				b.Run(fmt.Sprintf("queries%d/page%d/%s", queries, page, name), func(b *testing.B) {
					e := newEngine(b, 1)
					out := forwardOf(b, e, p)
					b.ReportAllocs()
					for b.Loop() {
						_ = e.Forward(&p.Spec, out.o, out.lse, p.q, p.k, p.v)
					}
				})
			}
		}
	}
}
