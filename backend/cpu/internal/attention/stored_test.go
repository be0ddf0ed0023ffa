package attention

import (
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/backend/cpu/internal/gemm"
	"github.com/lorafuse/lorafuse/tensor"
)

// halve gives m in bfloat16, after rounding its own elements to that.
func halve(t testing.TB, m Rows) Rows {
	b := make([]byte, 2*len(m.Data))
	require.NoError(t, tensor.FromFloat32(b, m.Data, tensor.BF16))
	require.NoError(t, tensor.ToFloat32(m.Data, b, tensor.BF16))
	return Rows{BF16: b, Stride: m.Stride}
}

// TestStored: operands in bfloat16 give what the same numbers in float32 do, and
// a result in bfloat16 is that result, rounded once.
func TestStored(t *testing.T) {
	many := Spec{QHeads: 40, KVHeads: 2, HeadDim: 16, Keys: 1300, Lo: []int32{0, 7, 7}, Hi: []int32{1200, 7, 1300}}
	for name, spec := range map[string]Spec{
		"documents": causal(4, 2, 24, 70, 3, 300), "heads of 64": causal(2, 1, 64, 190), "decode": {QHeads: 4, KVHeads: 2, HeadDim: 32, Keys: 90, Lo: []int32{0}, Hi: []int32{77}},
		"decode many keys": many, "nothing to see": {QHeads: 2, KVHeads: 2, HeadDim: 8, Keys: 20, Lo: []int32{3, 0, 5, 0, 0, 0, 0, 0, 0, 1}, Hi: []int32{3, 9, 5, 9, 9, 9, 9, 9, 9, 1}},
	} {
		t.Run(name, func(t *testing.T) {
			e := engineOf(t, 3, gemm.BF16)
			p := newProblem(9, spec)
			q, k, v, dO := halve(t, p.q), halve(t, p.k), halve(t, p.v), halve(t, p.dO)
			want := p.forward(t, e)
			cols := p.QHeads * p.HeadDim
			o := Rows{BF16: make([]byte, 2*len(want.o.Data)), Stride: want.o.Stride}
			lse := make([]float32, len(want.lse))
			require.NoError(t, e.Forward(&p.Spec, o, lse, q, k, v))
			row := make([]float32, cols)
			for i := range p.queries() {
				for j, x := range o.row(row, i, 0, cols) {
					w := want.o.from(i, 0)[j]
					require.LessOrEqual(t, math.Abs(float64(x-w)), math.Abs(float64(w))/256+1e-5, fmt.Sprint(i, j, x, w))
				}
			}
			for i, w := range want.lse {
				require.True(t, w == lse[i] || math.Abs(float64(w-lse[i])) < 1e-4, fmt.Sprint(i, w, lse[i]))
			}

			grads := func(dO, q, k, v Rows) (g Gradients) {
				g.Q, g.K, g.V = p.rows(nil, p.queries(), cols), p.rows(nil, p.Keys, p.KVHeads*p.HeadDim), p.rows(nil, p.Keys, p.KVHeads*p.HeadDim)
				require.NoError(t, e.Backward(&p.Spec, g, dO, q, k, v, o, want.lse))
				return g
			}
			exact, got := grads(p.dO, p.q, p.k, p.v), grads(dO, q, k, v)
			for i, m := range []Rows{exact.Q, exact.K, exact.V} {
				g := []Rows{got.Q, got.K, got.V}[i]
				for j, w := range m.Data {
					same := math.IsNaN(float64(w)) && math.IsNaN(float64(g.Data[j]))
					require.True(t, same || math.Abs(float64(w-g.Data[j])) < 1e-4, fmt.Sprint(i, j, w, g.Data[j]))
				}
			}
		})
	}
}
