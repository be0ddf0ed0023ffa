package gputest

import (
	"context"
	"encoding/binary"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/backend/cpu"
	"github.com/lorafuse/lorafuse/graph"
	"github.com/lorafuse/lorafuse/internal/ir"
	"github.com/lorafuse/lorafuse/tensor"
)

// The sizes of a KV cache.
const (
	cacheRows, cachePage = 1024, 16
	cacheHeads, cacheKV  = 6, 2
	cacheSize            = 16  // of a head
	cacheBatch           = 160 // tokens of a run, at most
	overflown            = 398 // the last token of text 0, whose value is infinite
)

// cache rotates queries and keys, writes keys and values to a cache, and attends to it.
type cache struct {
	*Bound
	paged  bool
	narrow bool // keys and values are stored as bf16
}

func newCache(t *testing.T, dev backend.Device, window int, paged, narrow bool) *cache {
	t.Helper()
	g, s := graph.New(), ir.Static
	n := g.Bound("n", cacheBatch)
	f32 := func(name string, heads int) graph.Tensor { return g.Param(name, tensor.F32, n, s(heads*cacheSize)) }
	i32 := func(name string, d ir.Dim) graph.Tensor { return g.Param(name, tensor.I32, d) }
	table := i32("positions", n).RoPETable(g.Param("frequencies", tensor.F32, s(cacheSize/2)), 1)
	q, k, v := f32("q", cacheHeads).RoPE(table, cacheSize), f32("k", cacheKV).RoPE(table, cacheSize), f32("v", cacheKV)
	write := func(name string, x graph.Tensor) graph.Tensor {
		all := g.Param(name, tensor.F32, s(cacheRows), s(cacheKV*cacheSize))
		if paged {
			return all.ScatterRows(x, i32("index", n))
		}
		return all.UpdateRows(x, i32("offset", s(1)))
	}
	keys, values := write("keys", k), write("values", v)
	a := ir.AttentionAttr{Heads: cacheHeads, KVHeads: cacheKV, HeadDim: cacheSize, Scale: 0.25, Window: window}
	var pages []graph.Tensor
	if paged {
		a.Page, pages = cachePage, []graph.Tensor{i32("pages", g.Bound("pages", cacheRows/cachePage))}
	}
	y := q.Attention(keys, values, i32("lo", n), i32("hi", n), a, pages...)
	p := g.Program().Result("y", y).Update("keys", keys).Update("values", values)
	if narrow {
		p.StoreBF16(dev, 0)
	}
	c := &cache{Bind(t, dev, p), paged, narrow}
	for _, name := range []string{"keys", "values"} {
		c.narrow = c.narrow && c.Program().Args[c.Program().ArgIndex(name)].Stored() == tensor.BF16
	}
	return c
}

// token is token number at of a text.
type token struct{ text, at int }

// run processes tokens of texts whose keys and values are in the given pages. It returns a row for each token.
func (c *cache) run(t *testing.T, pages map[int][]int32, tokens []token) [][]float32 {
	t.Helper()
	in := map[string][]int32{"offset": {int32(tokens[0].at)}}
	first := map[int]int{} // page of the table that a text begins at
	add := func(name string, x int) { in[name] = append(in[name], int32(x)) }
	var q, k, v []float32
	for _, x := range tokens {
		base, ok := first[x.text]
		if !ok {
			base = len(in["pages"])
			first[x.text] = base
			in["pages"] = append(in["pages"], pages[x.text]...)
		}
		if !c.paged {
			base = 0
		}
		add("positions", x.at)
		add("lo", base*cachePage)
		add("hi", base*cachePage+x.at+1)
		add("index", int(pages[x.text][x.at/cachePage])*cachePage+x.at%cachePage)
		seed := uint64(1000*x.text + x.at)
		q, k, v = append(q, numbers(3*seed, cacheHeads*cacheSize)...), append(k, numbers(3*seed+1, cacheKV*cacheSize)...), append(v, numbers(3*seed+2, cacheKV*cacheSize)...)
		if x == (token{0, overflown}) {
			v[len(v)-1] = float32(math.Inf(1))
		}
	}
	data := map[string][]byte{"frequencies": floats([]float32{1, .3, .1, .03, .01, .003, .001, .0003}, 8).Data, "q": floats(q).Data, "k": floats(k).Data, "v": floats(v).Data}
	for name, x := range in {
		data[name] = ints(x).Data
	}
	for name, b := range data {
		c.Set(t, name, b)
	}
	require.NoError(t, c.SetDim("n", len(tokens)))
	if c.paged {
		require.NoError(t, c.SetDim("pages", len(in["pages"])))
	}
	require.NoError(t, c.RunWait(context.Background()))
	const width = cacheHeads * cacheSize
	out := c.Get(t, "y", 4*len(tokens)*width)
	rows := make([][]float32, len(tokens))
	for i := range rows {
		for j := range width {
			rows[i] = append(rows[i], math.Float32frombits(binary.LittleEndian.Uint32(out[4*(i*width+j):])))
		}
	}
	return rows
}

// Pages tests a KV cache in pages. Tokens of several texts must get the same bits in one run as in runs of one token
// each; for one of the texts, also as with a cache without pages. A CPU must compute the same. If narrow is set, the
// cache is stored as bf16, and the device must have been opened with that precision.
func Pages(t *testing.T, dev backend.Device, narrow bool) {
	o, limit := backend.Options{Threads: 2}, 1e-5
	if narrow {
		o.Precision, limit = backend.BF16, 0.03
	}
	host, err := cpu.Open(o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, host.Close()) })
	for _, window := range []int{0, 150} {
		together, alone, flat, on := newCache(t, dev, window, true, narrow), newCache(t, dev, window, true, narrow), newCache(t, dev, window, false, narrow), newCache(t, host, window, true, narrow)
		require.Equal(t, [3]bool{narrow, narrow, narrow}, [3]bool{together.narrow, alone.narrow, on.narrow}, "the cache is stored as bf16")
		// Text 0 is read in pieces, next to single tokens of the others. Tokens of a long piece are computed in tiles,
		// and those before an infinite value do not see it, except on the CPU.
		r, pages, done := rand.New(rand.NewPCG(1, 2)), map[int][]int32{}, map[int]int{}
		free := r.Perm(cacheRows / cachePage)
		for _, pieces := range [][]int{{30, 1, 0}, {32, 0, 0}, {29, 1, 2}, {31, 1, 0}, {30, 0, 2}, {1, 1, 1}, {28, 0, 3}, {100, 1, 20}, {27, 2, 1}, {1, 1, 1}, {90, 0, 2}} {
			var tokens []token
			for text, n := range pieces {
				for range n {
					if done[text]%cachePage == 0 {
						pages[text], free = append(pages[text], int32(free[0])), free[1:]
					}
					tokens = append(tokens, token{text, done[text]})
					done[text]++
				}
			}
			got, want := together.run(t, pages, tokens), on.run(t, pages, tokens)
			finite := !slices.Contains(tokens, token{0, overflown})
			for i, x := range tokens {
				require.Equal(t, alone.run(t, pages, tokens[i:i+1])[0], got[i], "token %d of text %d", x.at, x.text)
				for j := 0; finite && j < len(want[i]); j++ {
					require.InDelta(t, want[i][j], got[i][j], limit, "token %d of text %d", x.at, x.text)
				}
			}
			for from := 0; from < pieces[0] && flat.narrow == narrow; from += 32 { // more would be computed by other kernels
				to := min(from+32, pieces[0])
				assert.Equal(t, got[from:to], flat.run(t, pages, tokens[from:to]), "without pages, from token %d on", tokens[from].at)
			}
		}
	}
}
