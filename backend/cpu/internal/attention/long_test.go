package attention

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/backend/cpu/internal/gemm"
)

// rounding is an engine whose products may round to bfloat16.
func rounding(t testing.TB, workers int) *Engine {
	return engineOf(t, workers, gemm.BF16)
}

// everyone is the Spec of so many queries that all see the same keys, but for those
// between the first few and the last that see nothing.
func everyone(queries, keys, idle int) Spec {
	s := Spec{QHeads: 1, KVHeads: 1, HeadDim: 16, Keys: keys}
	for i := range queries {
		hi := int32(keys)
		if i >= 40 && i < 40+idle {
			hi = 0
		}
		s.Lo, s.Hi = append(s.Lo, 0), append(s.Hi, hi)
	}
	return s
}

// Long sequences have larger tiles, of which not all queries see all keys.
func TestTilesOfLongSequences(t *testing.T) {
	windowed, cached := causal(1, 1, 16, 1100), causal(1, 1, 16, 1300)
	windowed.Window = 150
	cached.Lo, cached.Hi = cached.Lo[200:], cached.Hi[200:]
	for i, s := range []Spec{
		causal(2, 1, 16, 1100, 300, 70), causal(1, 1, 8, 4200), windowed, cached, everyone(1050, 300, 500), everyone(300, 30, 0),
	} {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			p := newProblem(uint64(i), s)
			exact := p.run(t, newEngine(t, 1))
			p.requireEqualsReference(t, exact)
			requireSame(t, exact, p.run(t, newEngine(t, 3)))

			rounded := p.run(t, rounding(t, 1))
			requireSame(t, rounded, p.run(t, rounding(t, 3)))
			want := p.reference()
			const rounding = 0x1p-8 // of each of two factors; of dS, the difference of such sums, that of four
			requireClose(t, "o", want.o, rounded.o, 2*rounding)
			requireClose(t, "dq", want.dq, rounded.grad.Q, 4*rounding)
			requireClose(t, "dk", want.dk, rounded.grad.K, 4*rounding)
			requireClose(t, "dv", want.dv, rounded.grad.V, 4*rounding)
		})
	}
}

// Room for the products of the largest tiles is made before.
func TestReservedLongSequencesAllocateNothing(t *testing.T) {
	p := newProblem(1, causal(2, 1, 16, 1100, 5))
	r := p.run(t, rounding(t, 1))
	e := rounding(t, 1)
	e.Reserve(Sizes{Queries: p.queries(), Keys: p.Keys, Heads: p.QHeads, HeadDim: p.HeadDim})
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_ = e.Forward(&p.Spec, r.o, r.lse, p.q, p.k, p.v)
	_ = e.Backward(&p.Spec, r.grad, p.dO, p.q, p.k, p.v, r.o, r.lse)
	runtime.ReadMemStats(&after)
	require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(1<<10)) // the runtime's own
}

// What a tile has is decided by its sequence.
func TestQueriesOfLongSequences(t *testing.T) {
	for _, c := range []struct{ long, sequence, want int }{
		{0, 100000, 64}, {256, 255, 64}, {256, 256, 128}, {256, 1023, 128}, {256, 1024, 256}, {4096, 1024, 64}, {4096, 4096, 128},
	} {
		p := division{long: c.long}
		require.Equal(t, c.want, p.queriesOf(c.sequence), c)
	}
}
