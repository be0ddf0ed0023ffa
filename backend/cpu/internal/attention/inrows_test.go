package attention

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/lorafuse/lorafuse/backend/cpu/internal/gemm"
	"github.com/lorafuse/lorafuse/backend/cpu/internal/pool"
)

// TestInvariant: a query gives the same bits alone, as when it is decoded, and with
// any others of its document and of other documents, on any number of workers.
func TestInvariant(t *testing.T) {
	engines := make([]*Engine, 2)
	for i := range engines {
		p := pool.New(i + 1)
		t.Cleanup(p.Close)
		engines[i] = New(p, gemm.New(p))
		engines[i].SetInvariant(true)
	}
	rapid.Check(t, func(t *rapid.T) {
		r := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1))
		normal := func(n int) []float32 {
			x := make([]float32, n)
			for i := range x {
				x[i] = float32(r.NormFloat64())
			}
			return x
		}
		s := &Spec{KVHeads: rapid.IntRange(1, 3).Draw(t, "kv heads"), HeadDim: rapid.SampledFrom([]int{4, 8, 33}).Draw(t, "size"), Scale: 0.3}
		s.QHeads = s.KVHeads * rapid.IntRange(1, 3).Draw(t, "group")
		s.Window = rapid.SampledFrom([]int{0, 0, 5, 600}).Draw(t, "window")
		s.SoftCap = rapid.SampledFrom([]float32{0, 2}).Draw(t, "cap")
		docs := rapid.SliceOfN(rapid.SampledFrom([]int{1, 2, 9, 70, 700, 1100}), 1, 3).Draw(t, "documents")
		var lo, hi []int32 // of all queries of all documents
		for _, n := range docs {
			begin := s.Keys
			for i := range n {
				lo, hi = append(lo, int32(begin)), append(hi, int32(begin+i+1))
			}
			s.Keys += n
		}
		cols, kv := s.QHeads*s.HeadDim, s.KVHeads*s.HeadDim
		q, k, v := normal(s.Keys*cols), normal(s.Keys*kv), normal(s.Keys*kv)
		run := func(e *Engine, which []int) (o, lse []float32) {
			c := *s
			var rows []float32
			for _, i := range which {
				c.Lo, c.Hi = append(c.Lo, lo[i]), append(c.Hi, hi[i])
				rows = append(rows, q[i*cols:(i+1)*cols]...)
			}
			o, lse = make([]float32, len(rows)), make([]float32, len(which)*s.QHeads)
			require.NoError(t, e.Forward(&c, Rows{Data: o, Stride: cols}, lse, Rows{Data: rows, Stride: cols}, Rows{Data: k, Stride: kv}, Rows{Data: v, Stride: kv}))
			return o, lse
		}
		which := r.Perm(s.Keys)[:min(s.Keys, rapid.OneOf(rapid.IntRange(1, 9), rapid.IntRange(10, 300)).Draw(t, "queries"))]
		o, lse := run(engines[0], which)
		o2, lse2 := run(engines[1], which)
		require.Equal(t, asBits(o), asBits(o2), "workers")
		require.Equal(t, asBits(lse), asBits(lse2), "workers")
		for range min(6, len(which)) {
			at := r.IntN(len(which))
			one, oneLSE := run(engines[1], which[at:at+1])
			require.Equal(t, asBits(o[at*cols:(at+1)*cols]), asBits(one), "query %d", which[at])
			require.Equal(t, asBits(lse[at*s.QHeads:(at+1)*s.QHeads]), asBits(oneLSE), "query %d", which[at])
		}
	})
}

func asBits(x []float32) []uint32 {
	b := make([]uint32, len(x))
	for i, v := range x {
		b[i] = math.Float32bits(v)
	}
	return b
}
