package exec_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/graph/exec"
	"github.com/lorafuse/lorafuse/ir"
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
