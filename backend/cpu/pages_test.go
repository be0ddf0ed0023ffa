package cpu_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/backend/cpu"
	"github.com/lorafuse/lorafuse/dev/gputest"
	"github.com/lorafuse/lorafuse/graph"
	"github.com/lorafuse/lorafuse/internal/ir"
	"github.com/lorafuse/lorafuse/tensor"
)

// The sizes of a cache: a pool of pages, or one table as long.
const (
	poolPage, poolRows  = 8, 256
	poolHeads, poolSize = 4, 16 // two heads share their keys
	poolQueries         = 64
	poolWidth           = poolHeads * poolSize
)

// cache is an attention on keys and values that it keeps from run to run.
type cache struct{ *gputest.Bound }

// newCache is one whose rows lie in pages, or in one table in order.
func newCache(t *testing.T, o backend.Options, paged bool) *cache {
	dev, err := cpu.Open(o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, dev.Close()) })
	g, s := graph.New(), ir.Static
	n := g.Bound("n", poolQueries)
	// Of a parameter a device keeps what it is given; of values it may keep less.
	value := func(name string, width int) graph.Tensor { return g.Param(name, tensor.F32, n, s(width)).Scale(0.5) }
	i32 := func(name string, d ir.Dim) graph.Tensor { return g.Param(name, tensor.I32, d) }
	write := func(name string) graph.Tensor {
		table, rows := g.Param("cache."+name, tensor.F32, s(poolRows), s(poolWidth/2)), value(name, poolWidth/2)
		if paged {
			return table.ScatterRows(rows, i32("index", n))
		}
		return table.UpdateRows(rows, i32("offset", s(1)))
	}
	a := ir.AttentionAttr{Heads: poolHeads, KVHeads: poolHeads / 2, HeadDim: poolSize, Scale: 0.3}
	k, v := write("k"), write("v")
	q, lo, hi := value("q", poolWidth), i32("lo", n), i32("hi", n)
	y := q.Attention(k, v, lo, hi, a)
	if paged {
		a.Page = poolPage
		y = q.Attention(k, v, lo, hi, a, i32("pages", g.Bound("pages", poolRows/poolPage)))
	}
	return &cache{gputest.Bind(t, dev, g.Program().Result("y", y).Update("cache.k", k).Update("cache.v", v).StoreBF16(dev, 0))}
}

// run gives the result for rows of a text, as bytes.
func (c *cache) run(t *testing.T, rows, pages int, in map[string][]byte) []byte {
	for name, b := range in {
		c.Set(t, name, b)
	}
	require.NoError(t, c.SetDim("n", rows))
	if pages > 0 {
		require.NoError(t, c.SetDim("pages", pages))
	}
	require.NoError(t, c.RunWait(context.Background()))
	return c.Get(t, "y", 4*rows*poolWidth)
}

// TestPagedCache: a text that is read in pieces gives the same bytes from a cache in
// pages, which it gets one by one in any order, as from one table; also where the
// cache lies in bfloat16. Rows are written where they belong, and no table is copied.
func TestPagedCache(t *testing.T) {
	for _, o := range []backend.Options{{}, {BatchInvariant: true}, {Precision: backend.BF16}, {Precision: backend.BF16, BatchInvariant: true}} {
		o.Threads = 2
		t.Run(fmt.Sprintf("precision %v invariant %v", o.Precision, o.BatchInvariant), func(t *testing.T) {
			flat, paged := newCache(t, o, false), newCache(t, o, true)
			p := paged.Program()
			assert.Equal(t, o.Precision == backend.BF16, p.Args[p.ArgIndex("cache.k")].Store == tensor.BF16, "%v", p)
			assert.Less(t, p.Arena, 4*poolRows*poolWidth/2, "a table is copied: %v", p)
			for _, l := range p.Launches {
				if l.Op == ir.ScatterRows {
					assert.True(t, l.In[0].Same(l.Out[0]), "%v", l)
				}
			}
			r := rand.New(rand.NewPCG(3, 4))
			free := r.Perm(poolRows / poolPage)
			var pages []byte
			pieces := []int{40, 1, 1, 7, 1, 20, 1, 1, 64, 1}
			for step, from := 0, 0; step < len(pieces); step++ {
				done := pieces[step]
				in := map[string][]byte{"offset": word(nil, from)}
				for i := from; i < from+done; i++ {
					if i%poolPage == 0 {
						pages, free = word(pages, free[0]), free[1:]
					}
					in["lo"], in["hi"] = word(in["lo"], 0), word(in["hi"], i+1)
					page := binary.LittleEndian.Uint32(pages[i/poolPage*4:])
					in["index"] = word(in["index"], int(page)*poolPage+i%poolPage)
				}
				in["pages"] = pages
				for name, width := range map[string]int{"q": poolWidth, "k": poolWidth / 2, "v": poolWidth / 2} {
					x := make([]float32, done*width)
					for i := range x {
						x[i] = float32(r.NormFloat64())
					}
					in[name] = floatBytes(x)
				}
				want := flat.run(t, done, 0, in)
				require.Equal(t, want, paged.run(t, done, len(pages)/4, in), "rows [%d,%d)", from, from+done)
				from += done
			}
		})
	}
}

func word(b []byte, x int) []byte { return binary.LittleEndian.AppendUint32(b, uint32(x)) }
