package exec_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/graph/exec"
	"github.com/lorafuse/lorafuse/internal/ir"
	"github.com/lorafuse/lorafuse/tensor"
)

// TestProductsOfOneMatrixFollowEachOther: the adapters of q, k and v come one
// after the other, and so do q, k and v, though the model makes them in turn.
func TestProductsOfOneMatrixFollowEachOther(t *testing.T) {
	g := ir.New()
	s := ir.Static
	param := func(name string, shape ...ir.Dim) ir.Value {
		return g.Param(name, ir.Type{DType: tensor.F32, Shape: shape})
	}
	x := param("x", s(4), s(8))
	var spec exec.Spec
	for _, name := range []string{"q", "k", "v"} {
		h := g.Linear(x, param("A_"+name, s(2), s(8)), 0)
		y := g.Gemm([]ir.Product{{A: x, B: param("W_"+name, s(8), s(8)), TB: true, Alpha: 1}, {A: h, B: param("B_"+name, s(8), s(2)), TB: true, Alpha: 2}}, 0, 0)
		spec.Results = append(spec.Results, exec.Result{Name: name, Value: g.Unary(ir.Neg, y)})
	}
	p := plan(t, g, spec)
	var got []string
	for _, l := range p.Launches {
		if l.Op == ir.Gemm {
			got = append(got, fmt.Sprint(l.Out[0].Type.Shape))
		}
	}
	require.Equal(t, []string{"[4,2]", "[4,2]", "[4,2]", "[4,8]", "[4,8]", "[4,8]"}, got)
}

// TestAdaptersComeToTheirProducts: dy·B of several layers of one x, computed separately, moves directly before the sum
// of dy·W + dh·A, and sums of gradients move after it.
func TestAdaptersComeToTheirProducts(t *testing.T) {
	for _, dropout := range []bool{false, true} {
		g := ir.New()
		s := ir.Static
		param := func(name string, shape ...ir.Dim) ir.Value {
			return g.Param(name, ir.Type{DType: tensor.F32, Shape: shape})
		}
		x, key := param("x", s(4), s(8)), g.Param("key", ir.Type{DType: tensor.U32, Shape: []ir.Dim{s(3)}})
		var spec exec.Spec
		var sums []ir.Product
		for _, name := range []string{"q", "k"} {
			dy := g.Unary(ir.Neg, param("dy_"+name, s(4), s(6)))
			var dh ir.Value
			if dropout {
				dh = g.LoRADown(dy, param("B_"+name, s(2), s(6)), key, ir.DropoutAttr{P: 0.5})
			} else {
				dh = g.MatMul(dy, param("B_"+name, s(6), s(2)), false, false)
			}
			sum := param("sum_"+name, s(2), s(8))
			da := g.Gemm([]ir.Product{{A: dh, B: x, TA: true, Alpha: 1}}, 0, sum)
			spec.Updates = append(spec.Updates, exec.Update{Param: "sum_" + name, Value: da})
			sums = append(sums, ir.Product{A: dy, B: param("W_"+name, s(6), s(8)), Alpha: 1}, ir.Product{A: dh, B: param("A_"+name, s(2), s(8)), Alpha: 1})
		}
		spec.Results = append(spec.Results, exec.Result{Name: "dx", Value: g.Gemm(sums, 0, 0)})
		var got []string
		for _, l := range plan(t, g, spec).Launches {
			got = append(got, fmt.Sprintf("%v%v", l.Op, l.Out[0].Type.Shape))
		}
		down := "Gemm[4,2]"
		if dropout {
			down = "LoRADown[4,2]"
		}
		require.Equal(t, []string{"Unary[4,6]", "Unary[4,6]", down, down, "Gemm[4,8]"}, got[:5])
		require.ElementsMatch(t, []string{"Gemm[2,8]", "Gemm[2,8]"}, got[5:])
	}
}
