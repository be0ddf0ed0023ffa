package conformance

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/graph/exec"
	"github.com/lorafuse/lorafuse/internal/ir"
)

// adaptedRanks are the ranks of the adapters in the layers of runAdapters.
var adaptedRanks = []int{4, 16, 9}

// adaptedLayers are the sizes [out, in] of these layers: q, k and v, an output projection, gate, up and down.
var adaptedLayers = [][2]int{{96, 512}, {40, 512}, {40, 512}, {512, 512}, {150, 512}, {150, 512}, {512, 256}}

// adaptedLimit bounds the error of a product of a GLU of adapted layers. PyTorch in float64 with operands rounded to
// bfloat16 reaches 0.084 on 270 rows.
const adaptedLimit = 0.1

// runAdapters checks linear layers whose rows use several adapters, as a served batch has them. A row must have the same
// bits in any order of the rows, and next to rows of other adapters.
func runAdapters(t *testing.T, dev backend.Device) {
	for _, n := range []int{1, 5, 8, 9, 17, 40, 70, 270} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			c := &testCase{bounds: fmt.Sprintf("n=%d/%d", n, max(n, 80)), in: adaptedInputs(), build: adaptedBlock}
			s := c.set(t)
			all := s.run(t, dev, s.outs, exec.Spec{})
			for i := range s.outs {
				limit := 2 * roundedLimit
				if i == len(s.outs)-1 {
					limit = adaptedLimit
				}
				out := s.outs[i : i+1]
				want := s.reference(t, out)
				s.compare(t, all[i:i+1], out, want, limit)
				s.compare(t, s.run(t, dev, out, exec.Spec{}), out, want, limit)
			}
			other := c.set(t)
			for _, name := range []string{"in0", "in1", "in2"} {
				reverse(other.hosts[name])
			}
			kept := (n + 1) / 2 // rows from the first on; the others get another adapter
			for i := range n - kept {
				other.hosts["in1"].Data[i] = float64(i % len(adaptedRanks))
				other.hosts["in2"].Data[i] = -1
			}
			for i, got := range other.run(t, dev, other.outs, exec.Spec{}) {
				row := len(got) / n
				for j := range kept {
					require.Equal(t, all[i][j*row:][:row], got[(n-1-j)*row:][:row], "output %d, row %d", i, j)
				}
			}
		})
	}
}

// reverse reverses the order of rows.
func reverse(h *ir.Host) {
	n := h.Shape[0]
	row := len(h.Data) / n
	var rows []float64
	for i := range n {
		rows = append(rows, h.Data[(n-1-i)*row:][:row]...)
	}
	h.Data = rows
}

// anyAdapter returns numbers of adapters; -1 means none.
func anyAdapter(r *rand.Rand, shape []int) []float64 {
	return each(shape, func() float64 { return float64(r.IntN(len(adaptedRanks)+1) - 1) })
}

// adaptedInputs returns the inputs of adaptedBlock: x, the adapters of its rows in most layers and in the layers k and
// up, the scales, and W, A and B of each layer. One of the adapters is stored as bfloat16.
func adaptedInputs() []input {
	in := []input{arg("f32[n,512]", normal), {typ: "i32[n]", fill: anyAdapter}, {typ: "i32[n]", fill: anyAdapter}, frozen("f32[3]", values(1, 0.5, -2))}
	for _, l := range adaptedLayers {
		in = append(in, arg(fmt.Sprintf("bf16[%d,%d]", l[0], l[1]), normal))
		for i, rank := range adaptedRanks {
			d := []string{"f32", "f32", "bf16"}[i]
			in = append(in, arg(fmt.Sprintf("%s[%d,%d]", d, rank, l[1]), normal), arg(fmt.Sprintf("%s[%d,%d]", d, l[0], rank), normal))
		}
	}
	return in
}

// adaptedBlock computes layers as in a decoder: the negatives of q, k and v, the sum of x and an output projection, and
// the sum of x and down. Down reads 256 columns: those of a GLU of gate and up, and 106 of them again.
func adaptedBlock(g *ir.Graph, in []ir.Value) []ir.Value {
	x := g.Unary(ir.Neg, in[0])
	layer := func(i int, x ir.Value) ir.Value {
		own := in[4+i*(1+2*len(adaptedRanks)):]
		p, up := ir.RowsProduct{X: x, Index: in[1], TB: true}, ir.RowsProduct{TB: true, Scale: in[3], Width: adaptedLayers[i][0]}
		if i == 1 || i == 5 {
			p.Index = in[2]
		}
		for j := range adaptedRanks {
			p.Weights, up.Weights = append(p.Weights, own[1+2*j]), append(up.Weights, own[2+2*j])
		}
		p.Width = slices.Max(adaptedRanks)
		up.X, up.Index = g.RowsGemm(p), p.Index
		up.C = g.Gemm([]ir.Product{{A: x, B: own[0], TB: true, Alpha: 1}}, 0, 0)
		return g.RowsGemm(up)
	}
	var outs []ir.Value
	for i := range 3 {
		outs = append(outs, g.Unary(ir.Neg, layer(i, x)))
	}
	y := g.Unary(ir.Neg, g.Unary(ir.Abs, x))
	outs = append(outs, g.Add(layer(3, y), x))
	y = g.Unary(ir.Tanh, x)
	inner := g.GLU(layer(4, y), layer(5, y), ir.SiLU)
	inner = g.Concat(1, inner, g.Slice(inner, 1, 0, 106))
	return append(outs, g.Add(x, layer(6, inner)))
}
