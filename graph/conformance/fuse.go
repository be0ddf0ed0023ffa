package conformance

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/graph/exec"
	"github.com/lorafuse/lorafuse/internal/ir"
)

// pattern is a graph of primitives, and the launches that it must become on a device that supports every composite.
type pattern struct {
	name  string
	in    []input
	build func(g *ir.Graph, in []ir.Value) []ir.Value
	want  map[ir.Op]int // number of launches by operation; others are not counted
}

// runFuse checks that patterns are fused if they should be, that other graphs are not, and that fusion changes no
// result.
func runFuse(t *testing.T, dev backend.Device) {
	for _, p := range patterns() {
		t.Run(p.name, func(t *testing.T) {
			c := &testCase{name: p.name, bounds: "n=3/5", in: p.in, build: p.build}
			s := c.set(t)
			counts := launches(t, s)
			for op, n := range p.want {
				assert.Equal(t, n, counts[op], "launches of %v", op)
			}
			want := s.reference(t, s.outs)
			limit := decomposedLimit * decomposedLimit * defaultLimit
			s.compare(t, s.run(t, dev, s.outs, exec.Spec{NoFuse: true}), s.outs, want, limit)
			s.compare(t, s.run(t, dev, s.outs, exec.Spec{}), s.outs, want, limit)
		})
	}
}

// launches counts the launches of the scene's program by operation.
func launches(t *testing.T, s *scene) map[ir.Op]int {
	t.Helper()
	spec := exec.Spec{}
	for i, v := range s.outs {
		spec.Results = append(spec.Results, exec.Result{Name: fmt.Sprintf("out%d", i), Value: v})
	}
	p, err := exec.Plan(s.g, spec, func(ir.Op, any, []ir.Type) bool { return true })
	require.NoError(t, err)
	counts := map[ir.Op]int{}
	for _, l := range p.Launches {
		counts[l.Op]++
	}
	return counts
}

// keepLast reduces the last axis and keeps it with size one.
func keepLast(g *ir.Graph, fn ir.ReduceFn, x ir.Value) ir.Value {
	s := append(ir.Shape(nil), g.Type(x).Shape...)
	s[len(s)-1] = ir.Static(1)
	return g.Reshape(g.Reduce(fn, x, len(s)-1), s)
}

// inverseRMS computes rsqrt(Σx²/d + eps) along the last axis.
func inverseRMS(g *ir.Graph, x ir.Value, d, eps float64) ir.Value {
	mean := g.Scale(keepLast(g, ir.ReduceSum, g.Mul(x, x)), 1/d)
	return g.Unary(ir.Rsqrt, g.AddScalar(mean, eps))
}

func patterns() []pattern {
	xw := []input{arg("f32[n,12]", normal), arg("f32[12]", positive)}
	return append(gemmPatterns(), []pattern{
		{"RMSNorm", xw, func(g *ir.Graph, in []ir.Value) []ir.Value {
			return one(g.Mul(g.Mul(in[0], inverseRMS(g, in[0], 12, 1e-6)), in[1]))
		}, map[ir.Op]int{ir.RMSNorm: 1, ir.Binary: 0, ir.Unary: 0, ir.Reduce: 0, ir.Const: 0}},
		{"RMSNorm in another order", xw, func(g *ir.Graph, in []ir.Value) []ir.Value {
			return one(g.Mul(in[1], g.Mul(inverseRMS(g, in[0], 12, 1e-6), in[0])))
		}, map[ir.Op]int{ir.RMSNorm: 1, ir.Binary: 0, ir.Unary: 0}},
		{"RMSNorm whose inverse root is read again", xw, func(g *ir.Graph, in []ir.Value) []ir.Value {
			r := inverseRMS(g, in[0], 12, 1e-6)
			return []ir.Value{g.Mul(g.Mul(in[0], r), in[1]), r}
		}, map[ir.Op]int{ir.RMSNorm: 0}},
		{"RMSNorm whose unweighted value is read again", xw, func(g *ir.Graph, in []ir.Value) []ir.Value {
			n := g.Mul(in[0], inverseRMS(g, in[0], 12, 1e-6))
			return []ir.Value{g.Mul(n, in[1]), g.Unary(ir.Exp, n)}
		}, map[ir.Op]int{ir.RMSNorm: 0}},
		{"RMSNorm of another divisor", xw, func(g *ir.Graph, in []ir.Value) []ir.Value {
			return one(g.Mul(g.Mul(in[0], inverseRMS(g, in[0], 11, 1e-6)), in[1]))
		}, map[ir.Op]int{ir.RMSNorm: 0}},
		{"RMSNorm scaled by the root of others", append(xw, arg("f32[n,12]", normal)), func(g *ir.Graph, in []ir.Value) []ir.Value {
			return one(g.Mul(g.Mul(in[0], inverseRMS(g, in[2], 12, 1e-6)), in[1]))
		}, map[ir.Op]int{ir.RMSNorm: 0}},
		{"RMSNorm of one column repeated", []input{arg("f32[n,1]", normal), arg("f32[12]", positive)}, func(g *ir.Graph, in []ir.Value) []ir.Value {
			return one(g.Mul(g.Mul(in[0], inverseRMS(g, in[0], 1, 0.5)), in[1]))
		}, map[ir.Op]int{ir.RMSNorm: 0}},
		{"RMSNorm with rows and batch exchanged", []input{arg("f32[1,6,4]", normal), arg("f32[4]", positive)}, func(g *ir.Graph, in []ir.Value) []ir.Value {
			sum := g.Reshape(g.Reduce(ir.ReduceSum, g.Mul(in[0], in[0]), 2), ir.ShapeOf(6, 1, 1))
			r := g.Unary(ir.Rsqrt, g.AddScalar(g.Scale(sum, 0.25), 1e-6))
			return one(g.Mul(g.Mul(in[0], r), in[1]))
		}, map[ir.Op]int{ir.RMSNorm: 0}},
		{"SwiGLU", []input{arg("f32[n,9]", normal), arg("f32[n,9]", normal)}, func(g *ir.Graph, in []ir.Value) []ir.Value {
			return one(g.Mul(g.Mul(in[0], g.Unary(ir.Sigmoid, in[0])), in[1]))
		}, map[ir.Op]int{ir.GLU: 1, ir.Binary: 0, ir.Unary: 0}},
		{"SwiGLU in another order", []input{arg("f32[n,9]", normal), arg("f32[n,9]", normal)}, func(g *ir.Graph, in []ir.Value) []ir.Value {
			return one(g.Mul(in[1], g.Mul(g.Unary(ir.Sigmoid, in[0]), in[0])))
		}, map[ir.Op]int{ir.GLU: 1, ir.Binary: 0, ir.Unary: 0}},
		{"SwiGLU whose sigmoid is read again", []input{arg("f32[n,9]", normal), arg("f32[n,9]", normal)}, func(g *ir.Graph, in []ir.Value) []ir.Value {
			s := g.Unary(ir.Sigmoid, in[0])
			return []ir.Value{g.Mul(g.Mul(in[0], s), in[1]), g.Unary(ir.Neg, s)}
		}, map[ir.Op]int{ir.GLU: 0}},
		{"SwiGLU with one row of up", []input{arg("f32[n,9]", normal), arg("f32[9]", normal)}, func(g *ir.Graph, in []ir.Value) []ir.Value {
			return one(g.Mul(g.Mul(in[0], g.Unary(ir.Sigmoid, in[0])), in[1]))
		}, map[ir.Op]int{ir.GLU: 0}},
		{"SwiGLU in training", []input{arg("f32[n,9]", normal), arg("f32[n,9]", normal)}, func(g *ir.Graph, in []ir.Value) []ir.Value {
			y := g.Mul(g.Mul(in[0], g.Unary(ir.Sigmoid, in[0])), in[1])
			return append(one(y), g.Gradients(g.SumSquares(y), in, ir.GradOptions{})...)
		}, map[ir.Op]int{ir.GLU: 0}},
		{"Softmax", xw[:1], func(g *ir.Graph, in []ir.Value) []ir.Value {
			e := g.Unary(ir.Exp, g.Sub(in[0], keepLast(g, ir.ReduceMax, in[0])))
			return one(g.Div(e, keepLast(g, ir.ReduceSum, e)))
		}, map[ir.Op]int{ir.Softmax: 1, ir.Binary: 0, ir.Unary: 0, ir.Reduce: 0}},
		{"Softmax whose exponentials are read again", xw[:1], func(g *ir.Graph, in []ir.Value) []ir.Value {
			e := g.Unary(ir.Exp, g.Sub(in[0], keepLast(g, ir.ReduceMax, in[0])))
			return []ir.Value{g.Div(e, keepLast(g, ir.ReduceSum, e)), g.Unary(ir.Neg, e)}
		}, map[ir.Op]int{ir.Softmax: 0}},
		{"Softmax less the maximum of others", []input{arg("f32[n,12]", normal), arg("f32[n,12]", normal)}, func(g *ir.Graph, in []ir.Value) []ir.Value {
			e := g.Unary(ir.Exp, g.Sub(in[0], keepLast(g, ir.ReduceMax, in[1])))
			return one(g.Div(e, keepLast(g, ir.ReduceSum, e)))
		}, map[ir.Op]int{ir.Softmax: 0}},
		{"Softmax over the sum of others", []input{arg("f32[n,12]", normal), arg("f32[n,12]", positive)}, func(g *ir.Graph, in []ir.Value) []ir.Value {
			e := g.Unary(ir.Exp, g.Sub(in[0], keepLast(g, ir.ReduceMax, in[0])))
			return one(g.Div(e, keepLast(g, ir.ReduceSum, in[1])))
		}, map[ir.Op]int{ir.Softmax: 0}},
		{"Softmax with rows and batch exchanged", []input{arg("f32[1,6,4]", normal)}, func(g *ir.Graph, in []ir.Value) []ir.Value {
			e := g.Unary(ir.Exp, g.Sub(in[0], keepLast(g, ir.ReduceMax, in[0])))
			return one(g.Div(e, g.Reshape(g.Reduce(ir.ReduceSum, e, 2), ir.ShapeOf(6, 1, 1))))
		}, map[ir.Op]int{ir.Softmax: 0}},
		{"loss from the pass of its gradient",
			[]input{arg("f32[n,12]", normal), arg("f32[17,12]", normal), arg("i32[n]", labels(17))}, func(g *ir.Graph, in []ir.Value) []ir.Value {
				loss := g.LinearCrossEntropy(in[0], in[1], in[2])
				mean := g.Scale(loss, 0.25)
				return append([]ir.Value{loss, mean}, g.Gradients(mean, in[:1], ir.GradOptions{})...)
			}, map[ir.Op]int{ir.LinearCrossEntropy: 0, ir.LinearCrossEntropyGrad: 1}},
		{"losses of rows from the pass of their gradient, not their sum",
			[]input{arg("f32[n,12]", normal), arg("f32[17,12]", normal), arg("i32[n]", labels(17))}, func(g *ir.Graph, in []ir.Value) []ir.Value {
				losses, sum := g.LinearCrossEntropyByRow(in[0], in[1], in[2]), g.LinearCrossEntropy(in[0], in[1], in[2])
				return append([]ir.Value{losses, sum}, g.Gradients(g.Reduce(ir.ReduceSum, losses, 0), in[:1], ir.GradOptions{})...)
			}, map[ir.Op]int{ir.LinearCrossEntropy: 1, ir.LinearCrossEntropyGrad: 1}},
		{"loss without a gradient",
			[]input{arg("f32[n,12]", normal), arg("f32[17,12]", normal), arg("i32[n]", labels(17))}, func(g *ir.Graph, in []ir.Value) []ir.Value {
				loss := g.LinearCrossEntropy(in[0], in[1], in[2])
				g.Gradients(loss, in[:1], ir.GradOptions{}) // unused
				return one(loss)
			}, map[ir.Op]int{ir.LinearCrossEntropy: 1, ir.LinearCrossEntropyGrad: 0}},
		{"activation in the place of a group norm",
			[]input{arg("f32[n,5,7,12]", normal), arg("f32[12]", positive), arg("f32[12]", normal)}, func(g *ir.Graph, in []ir.Value) []ir.Value {
				return one(g.Scale(g.Activate(g.GroupNorm(in[0], in[1], in[2], 4, 1e-6), ir.SiLU), 2))
			}, map[ir.Op]int{ir.GroupNorm: 1, ir.Activate: 1}},
		{"group norm that is read beside its activation",
			[]input{arg("f32[n,5,7,12]", normal), arg("f32[12]", positive), arg("f32[12]", normal)}, func(g *ir.Graph, in []ir.Value) []ir.Value {
				x := g.GroupNorm(in[0], in[1], in[2], 4, 1e-6)
				return one(g.Mul(g.Activate(x, ir.GELU), x))
			}, map[ir.Op]int{ir.GroupNorm: 1, ir.Activate: 1}},
		{"equal expressions", xw[:1], func(g *ir.Graph, in []ir.Value) []ir.Value {
			return one(g.Add(g.Mul(g.Unary(ir.Exp, in[0]), in[0]), g.Unary(ir.Tanh, g.Mul(g.Unary(ir.Exp, in[0]), in[0]))))
		}, map[ir.Op]int{ir.Unary: 2, ir.Binary: 2}},
		{"constants", xw[:1], func(g *ir.Graph, in []ir.Value) []ir.Value {
			return one(g.AddScalar(g.Scale(g.Scale(in[0], 1), 3), 0))
		}, map[ir.Op]int{ir.Binary: 1, ir.Const: 1}},
		{"chains of reshapes", []input{arg("f32[4,6]", normal)}, func(g *ir.Graph, in []ir.Value) []ir.Value {
			x := g.Reshape(g.Reshape(in[0], ir.ShapeOf(2, 12)), ir.ShapeOf(24))
			return one(g.Unary(ir.Neg, g.Reshape(x, ir.ShapeOf(4, 6))))
		}, map[ir.Op]int{ir.Unary: 1, ir.Reshape: 0}},
	}...)
}
