package gemm_test

import (
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

// TestRunAllOfAToken: the products of a token are made at once, and warm ones
// allocate nothing.
func TestRunAllOfAToken(t *testing.T) {
	e := engine(t, 2, gemm.Supported()[len(gemm.Supported())-1])
	var calls []*gemm.Call
	for _, n := range []int{512, 256, 257} {
		c, _ := xWt(1, 512, n, gemm.BF16).call(t)
		calls = append(calls, c)
	}
	e.Reserve(e.NeedAll(calls))
	run := func() { e.RunAll(calls) }
	run()
	require.Zero(t, testing.AllocsPerRun(20, run))
	for _, c := range calls {
		got := append([]float32(nil), c.C...)
		e.Run(c)
		requireSameBits(t, got, c.C)
	}
}
