package gemm_test

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/lorafuse/lorafuse/backend/cpu/internal/gemm"
)

// TestRunAll: calls at once give what they give one by one, whatever their
// shapes; reserved for, they allocate nothing.
func TestRunAll(t *testing.T) {
	eachPrecision(t, func(t *testing.T, isa gemm.ISA) {
		e, one := engine(t, 3, isa), engine(t, 1, isa)
		rapid.Check(t, func(t *rapid.T) {
			var problems []*problem
			var want [][]float32
			var calls []*gemm.Call
			for range rapid.IntRange(0, 5).Draw(t, "calls") {
				p := drawProblem(t)
				problems = append(problems, p)
				want = append(want, p.compute(t, one.Run))
				p.compute(t, func(c *gemm.Call) { calls = append(calls, c) })
			}
			e.RunAll(calls)
			for i, c := range calls {
				requireSameBits(t, want[i], c.C, i, problems[i])
			}
		})
	})
}

// TestRunAllOfTokens: the products of a few tokens are made at once, and warm ones
// allocate nothing.
func TestRunAllOfTokens(t *testing.T) {
	for _, rows := range []int{1, 8} {
		e := engine(t, 2, gemm.Supported()[len(gemm.Supported())-1])
		var calls []*gemm.Call
		for _, n := range []int{512, 256, 257} {
			c, _ := lora(xWt(rows, 512, n, gemm.BF16), 16).call(t)
			calls = append(calls, c)
		}
		e.Reserve(e.NeedAll(calls))
		run := func() { e.RunAll(calls) }
		run()
		require.Zero(t, testing.AllocsPerRun(20, run), rows)
		for _, c := range calls {
			got := append([]float32(nil), c.C...)
			e.Run(c)
			requireSameBits(t, got, c.C, rows)
		}
	}
}

// TestRunAllAhead: room is made for other calls while some run, and changes nothing of
// these.
func TestRunAllAhead(t *testing.T) {
	e := engine(t, 2, gemm.Supported()[len(gemm.Supported())-1])
	var calls []*gemm.Call
	for _, n := range []int{512, 256, 257} {
		c, _ := lora(xWt(8, 512, n, gemm.BF16), 16).call(t)
		calls = append(calls, c)
	}
	e.RunAll(calls)
	var want [][]float32
	for _, c := range calls {
		want = append(want, slices.Clone(c.C))
	}
	need, stop, stopped := e.NeedAll(calls), make(chan struct{}), make(chan struct{})
	require.Positive(t, need.Group)
	go func() {
		defer close(stopped)
		for {
			select {
			case <-stop:
				return
			default:
				e.Reserve(need)
			}
		}
	}()
	for range 500 {
		e.RunAll(calls)
		for i, c := range calls {
			requireSameBits(t, want[i], c.C, i)
		}
	}
	close(stop)
	<-stopped
}

// TestRunAllOfOneMatrix: what calls with one A have in common is packed once,
// which must not show: not with adapters, of equal ranks and others, not where
// the call between goes another way, and not in the next run, when A is another.
func TestRunAllOfOneMatrix(t *testing.T) {
	eachPrecision(t, func(t *testing.T, isa gemm.ISA) {
		e, one := engine(t, 3, isa), engine(t, 1, isa)
		r := rand.New(rand.NewPCG(9, 9))
		for _, rows := range []int{2, 8, 70, 200} {
			x := newMatrix(t, r, rows, 600, gemm.F32, false, 0)
			var problems []*problem
			for _, s := range []struct{ n, rank int }{{96, 0}, {33, 0}, {64, 8}, {80, 8}, {50, 16}, {8, 0}, {96, 0}} {
				p := newProblem(r, rows, s.n, 0, false, s.n == 33)
				p.add(x, newMatrix(t, r, 600, s.n, gemm.BF16, true, 0), 1)
				if s.rank > 0 {
					p.add(newMatrix(t, r, rows, s.rank, gemm.F32, false, 0), newMatrix(t, r, s.rank, s.n, gemm.F32, true, 0), 2)
				}
				problems = append(problems, p)
			}
			for range 2 {
				var calls []*gemm.Call
				for _, p := range problems {
					p.compute(t, func(c *gemm.Call) { calls = append(calls, c) })
				}
				e.RunAll(calls)
				for i, p := range problems {
					p.rounded = isa&rounding != 0
					p.requireRight(t, calls[i].C)
					requireSameBits(t, p.compute(t, one.Run), calls[i].C, rows, i)
				}
				x.exact = false
				for i := range rows { // the same memory, other values
					for j := range 600 {
						x.put(i, j, float32(r.NormFloat64()))
					}
				}
			}
		}
	})
}
