package ir

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/tensor"
)

// gradCase builds values of an operation from params called x, y, z, ... Gradients are taken for all F32 params except
// the ones in frozen.
type gradCase struct {
	op     Op
	build  func(s *scene) []Value
	frozen string
}

func one(v Value) []Value { return []Value{v} }

var head = AttentionAttr{Heads: 2, KVHeads: 1, HeadDim: 3, Scale: 0.7}

func (s *scene) attention(a AttentionAttr, hi ...float64) (o, lse, q, k, v, lo, up Value) {
	lows := make([]float64, len(hi))
	q, k, v = s.normal("q", len(hi), a.Heads*a.HeadDim), s.normal("k", 5, a.KVHeads*a.HeadDim), s.normal("v", 5, a.KVHeads*a.HeadDim)
	lo, up = s.ids("lo", lows...), s.ids("hi", hi...)
	o, lse = s.Graph.Attention(q, k, v, lo, up, a)
	return o, lse, q, k, v, lo, up
}

func gradCases() []gradCase {
	all := []gradCase{
		{op: Where, build: func(s *scene) []Value {
			x, y := s.normal("x", 3, 4), s.normal("y", 4)
			return one(s.Where(s.Compare(Less, s.positive("c", 3, 1), s.Const(1, mat())), x, y))
		}, frozen: "c"},
		{op: Reduce, build: func(s *scene) []Value { return one(s.Reduce(ReduceSum, s.normal("x", 2, 3, 4), 1)) }},
		{op: Reduce, build: func(s *scene) []Value { return one(s.Reduce(ReduceMax, s.normal("x", 2, 3, 4), 0)) }},
		{op: Gemm, build: func(s *scene) []Value {
			x, w, h, b := s.normal("x", 3, 4), s.normal("w", 5, 4), s.normal("h", 2, 3), s.normal("b", 2, 5)
			return one(s.Gemm([]Product{{x, w, false, true, 1.5}, {h, b, true, false, -0.5}}, s.normal("bias", 5), s.normal("c", 3, 5)))
		}},
		{op: Gemm, build: func(s *scene) []Value {
			return one(s.Gemm([]Product{{s.normal("x", 2, 4, 3), s.normal("w", 2, 5, 4), true, true, 2}}, 0, 0))
		}},
		{op: Gemm, build: func(s *scene) []Value { x := s.normal("x", 3, 3); return one(s.MatMul(x, x, false, true)) }},
		{op: Reshape, build: func(s *scene) []Value { return one(s.Reshape(s.normal("x", 2, 6), ShapeOf(3, 4))) }},
		{op: Transpose, build: func(s *scene) []Value { return one(s.Transpose(s.normal("x", 2, 3, 4), 2, 0, 1)) }},
		{op: Broadcast, build: func(s *scene) []Value { return one(s.Broadcast(s.normal("x", 3, 1), ShapeOf(2, 3, 4))) }},
		{op: Slice, build: func(s *scene) []Value { return one(s.Slice(s.normal("x", 2, 5, 3), 1, 1, 4)) }},
		{op: Slice, build: func(s *scene) []Value { return one(s.Slice(s.normal("x", 5), 0, 0, 5)) }},
		{op: Concat, build: func(s *scene) []Value {
			x := s.normal("x", 2, 3)
			return one(s.Concat(1, x, s.normal("y", 2, 1), x))
		}},
		{op: GatherRows, build: func(s *scene) []Value { return one(s.GatherRows(s.normal("x", 4, 3), s.ids("i", 2, 0, 2, 2, 3))) }},
		{op: ScatterAddRows, build: func(s *scene) []Value {
			return one(s.ScatterAddRows(s.normal("x", 5, 3), s.ids("i", 2, 0, 2, 2, 3), Static(4)))
		}},
		{op: RMSNorm, build: func(s *scene) []Value { return one(s.RMSNorm(s.normal("x", 3, 5), s.positive("w", 5), 0.1)) }},
		{op: RMSNormGrad, build: func(s *scene) []Value {
			return one(s.Apply(RMSNormGrad, NormAttr{0.1}, s.normal("dy", 3, 5), s.normal("x", 3, 5), s.positive("w", 5)))
		}},
		{op: RMSNormGrad, build: func(s *scene) []Value { // the same value twice
			x := s.normal("x", 3, 5)
			return one(s.Apply(RMSNormGrad, NormAttr{0.1}, x, x, s.positive("w", 5)))
		}},
		{op: RowsGemm, build: func(s *scene) []Value {
			return one(s.RowsGemm(RowsProduct{X: s.normal("x", 5, 4), Index: s.ids("i", 2, -1, 0, 2, 0), TB: true, Width: 6,
				Weights: []Value{s.normal("v", 3, 4), s.normal("u", 2, 2), s.normal("w", 5, 3)},
				Scale:   s.given("scale", tensor.F32, ShapeOf(3), 2, 1, -0.5), Bias: s.normal("bias", 3, 6), C: s.normal("c", 5, 6)}))
		}, frozen: "scale"},
		{op: RowsGemm, build: func(s *scene) []Value {
			return one(s.RowsGemm(RowsProduct{X: s.normal("x", 5, 4), Index: s.ids("i", 2, -1, 0, 2, 0), Stacked: true, Weights: []Value{s.normal("w", 3, 4, 2)}}))
		}},
		{op: RowsGemmGrad, build: func(s *scene) []Value {
			return one(s.Apply(RowsGemmGrad, RowsGemmAttr{TB: true, Width: 2}, s.normal("dy", 5, 2), s.normal("x", 5, 4), s.ids("i", 2, -1, 0, 2, 0), s.given("w", tensor.BF16, ShapeOf(3, 2, 4), make([]float64, 24)...)))
		}},
		{op: ScatterRows, build: func(s *scene) []Value {
			return one(s.ScatterRows(s.normal("x", 4, 3), s.normal("y", 5, 3), s.ids("i", 2, -1, 2, 0, 3)))
		}},
		{op: TopK, build: func(s *scene) []Value {
			v, _ := s.TopK(s.normal("x", 3, 5), 2)
			return one(v)
		}},
		{op: LayerNorm, build: func(s *scene) []Value {
			return one(s.LayerNorm(s.normal("x", 3, 5), s.positive("w", 5), s.normal("b", 5), 0.1))
		}},
		{op: LayerNorm, build: func(s *scene) []Value { return one(s.LayerNorm(s.normal("x", 3, 5), 0, s.normal("b", 5), 0.1)) }},
		{op: LayerNormGrad, build: func(s *scene) []Value {
			return one(s.Apply(LayerNormGrad, LayerNormAttr{Eps: 0.1, HasWeight: true}, s.normal("dy", 3, 5), s.normal("x", 3, 5), s.positive("w", 5)))
		}},
		{op: Dequantize, build: func(s *scene) []Value {
			w := s.given("w", tensor.F8E4M3, ShapeOf(3, 3), 1, 2, 3, -4, 5, 6, 7, 0.5, 9)
			return one(s.Dequantize(w, s.normal("scale", 2, 2), DequantizeAttr{2, 2}))
		}, frozen: "w"},
		{op: GroupNorm, build: func(s *scene) []Value {
			return one(s.GroupNorm(s.normal("x", 2, 3, 4), s.positive("w", 4), s.normal("b", 4), 2, 0.1))
		}},
		{op: Conv2D, build: func(s *scene) []Value {
			return one(s.Conv2D(s.normal("x", 2, 3, 4, 2), s.normal("w", 3, 2, 3, 2), s.normal("b", 3), Conv2DAttr{Stride: 2, Top: 1, Left: 1, Right: 1}))
		}},
		{op: Softmax, build: func(s *scene) []Value { return one(s.Softmax(s.normal("x", 3, 5))) }},
		{op: RoPE, build: func(s *scene) []Value { return one(s.RoPE(s.normal("x", 3, 8), s.normal("table", 3, 4), 4)) }, frozen: "table"},
		{op: RoPE, build: func(s *scene) []Value {
			return one(s.RoPEInterleaved(s.normal("x", 3, 8), s.normal("table", 3, 4), 4))
		}, frozen: "table"},
		{op: SinkAttention, build: func(s *scene) []Value {
			_, _, q, k, v, lo, hi := s.attention(head, 1, 3, 5)
			o, _ := s.Graph.SinkAttention(q, k, v, lo, hi, s.normal("sinks", 2), head)
			return one(o)
		}},
		{op: Attention, build: func(s *scene) []Value {
			o, _, _, _, _, _, _ := s.attention(head, 1, 3, 0, 5)
			return one(o)
		}},
		{op: Attention, build: func(s *scene) []Value {
			a := head
			a.Window = 2
			o, _, _, _, _, _, _ := s.attention(a, 1, 3, 4, 5)
			return one(o)
		}},
		{op: Dropout, build: func(s *scene) []Value { return one(s.Dropout(s.normal("x", 3, 5), s.key(), DropoutAttr{0.4, 1})) }},
		{op: LoRADown, build: func(s *scene) []Value {
			return one(s.LoRADown(s.normal("x", 3, 5), s.normal("a", 2, 5), s.key(), DropoutAttr{0.4, 1}))
		}},
		{op: LoRADownGrad, build: func(s *scene) []Value {
			return one(s.Apply(LoRADownGrad, DropoutAttr{0.4, 1}, s.normal("dh", 3, 2), s.normal("x", 3, 5), s.key()))
		}},
		{op: LoRADownInputGrad, build: func(s *scene) []Value {
			return one(s.Apply(LoRADownInputGrad, DropoutAttr{0.4, 1}, s.normal("dh", 3, 2), s.normal("a", 2, 5), s.key()))
		}},
		{op: CrossEntropy, build: func(s *scene) []Value { return one(s.CrossEntropy(s.normal("x", 4, 5), s.ids("y", 2, -100, 0, 4))) }},
		{op: CrossEntropyGrad, build: func(s *scene) []Value {
			return one(s.Apply(CrossEntropyGrad, nil, s.normal("x", 3, 5), s.ids("y", 2, -1, 0), s.normal("d")))
		}},
		{op: LinearCrossEntropy, build: func(s *scene) []Value {
			return one(s.LinearCrossEntropy(s.normal("x", 3, 4), s.normal("w", 5, 4), s.ids("y", 2, -1, 0)))
		}},
		{op: LinearCrossEntropy, build: func(s *scene) []Value {
			return one(s.LinearCrossEntropy(s.normal("x", 3, 4), s.normal("w", 5, 4), s.ids("y", 2, -1, 0)))
		}, frozen: "w"},
		{op: LinearCrossEntropyGrad, build: func(s *scene) []Value {
			d := s.Apply(LinearCrossEntropyGrad, nil, s.normal("x", 3, 4), s.normal("w", 5, 4), s.ids("y", 2, -1, 0), s.normal("d"))
			return []Value{d, s.Out(d, 1)}
		}},
		{op: LinearCrossEntropy, build: func(s *scene) []Value {
			return one(s.LinearCrossEntropyByRow(s.normal("x", 3, 4), s.normal("w", 5, 4), s.ids("y", 2, -1, 0)))
		}},
		{op: LinearCrossEntropy, build: func(s *scene) []Value {
			return one(s.LinearCrossEntropyByRow(s.normal("x", 3, 4), s.normal("w", 5, 4), s.ids("y", 2, -1, 0)))
		}, frozen: "w"},
		{op: LinearCrossEntropyGrad, build: func(s *scene) []Value {
			d := s.Apply(LinearCrossEntropyGrad, CrossEntropyAttr{ByRow: true}, s.normal("x", 3, 4), s.normal("w", 5, 4), s.ids("y", 2, -1, 0), s.normal("d", 3))
			return []Value{d, s.Out(d, 1)}
		}},
		{op: SumSquares, build: func(s *scene) []Value { return one(s.SumSquares(s.normal("x", 3, 5))) }},
	}
	for fn := Neg; fn < IsFinite; fn++ {
		all = append(all, gradCase{op: Unary, build: func(s *scene) []Value { return one(s.Unary(fn, s.positive("x", 7))) }})
	}
	for fn := Add; fn <= Min; fn++ {
		all = append(all,
			gradCase{op: Binary, build: func(s *scene) []Value { return one(s.Binary(fn, s.normal("x", 3, 4), s.positive("y", 3, 4))) }},
			gradCase{op: Binary, build: func(s *scene) []Value { return one(s.Binary(fn, s.normal("x", 3, 1), s.positive("y", 2, 1, 4))) }})
	}
	for _, act := range []Activation{SiLU, GELU, GELUTanh} {
		all = append(all,
			gradCase{op: Activate, build: func(s *scene) []Value { return one(s.Activate(s.normal("x", 7), act)) }},
			gradCase{op: ActivateGrad, build: func(s *scene) []Value {
				return one(s.Apply(ActivateGrad, ActivateAttr{act}, s.normal("dy", 7), s.normal("x", 7)))
			}},
			gradCase{op: GLU, build: func(s *scene) []Value { return one(s.GLU(s.normal("x", 7), s.normal("y", 7), act)) }},
			gradCase{op: GLUGrad, build: func(s *scene) []Value {
				d := s.Apply(GLUGrad, GLUAttr{act}, s.normal("dy", 7), s.normal("x", 7), s.normal("y", 7))
				return []Value{d, s.Out(d, 1)}
			}})
	}
	return all
}

// wrt lists the params that gradients are asked for.
func (s *scene) wrt(frozen string) (names []string, vs []Value) {
	for v := range s.Nodes {
		if p, ok := s.Nodes[v].Attr.(ParamAttr); ok && s.Nodes[v].Outs[0].DType == tensor.F32 && p.Name != frozen {
			names, vs = append(names, p.Name), append(vs, Value(v))
		}
	}
	return names, vs
}

func TestGradients(t *testing.T) {
	covered := map[Op]bool{}
	for i, c := range gradCases() {
		covered[c.op] = true
		t.Run(fmt.Sprintf("%v %d", c.op, i), func(t *testing.T) {
			s := newScene(t)
			loss := s.weighted(c.build(s)...)
			names, vs := s.wrt(c.frozen)
			grads := s.Gradients(loss, vs, GradOptions{})
			require.NoError(t, s.Err())
			for i, name := range names {
				s.close(s.differences(loss, name), s.value(grads[i]), 1e-7, name)
			}
		})
	}
	for _, op := range Ops() {
		// The reference of a Cast rounds; AttentionGrad is what a gradient ends in.
		if !Def(op).NoGradient && op != Out && op != Cast && op != AttentionGrad {
			assert.True(t, covered[op], "no gradient of %v is checked", op)
		}
	}
}

// TestRulesOfComposites compares the gradient rules of composites with the
// gradients of their decompositions. That of SinkAttention has none: it reads the
// log-sum-exp of Attention.
func TestRulesOfComposites(t *testing.T) {
	for i, c := range gradCases() {
		if !c.op.IsComposite() || Def(c.op).Gradient == nil || c.op == SinkAttention {
			continue
		}
		t.Run(fmt.Sprintf("%v %d", c.op, i), func(t *testing.T) {
			gradients := func() (all [][]float64) {
				s := newScene(t)
				loss := s.weighted(c.build(s)...)
				_, vs := s.wrt(c.frozen)
				for _, g := range s.Gradients(loss, vs, GradOptions{}) {
					all = append(all, s.value(g))
				}
				return all
			}
			want := gradients()
			rule := defs[c.op].Gradient
			defs[c.op].Gradient = nil
			defer func() { defs[c.op].Gradient = rule }()
			s := newScene(t)
			for i, got := range gradients() {
				s.close(want[i], got, 1e-12)
			}
		})
	}
}

// TestWidenedWeightsAreRecomputed requires the backward pass to widen weights in 8-bit floats again.
func TestWidenedWeightsAreRecomputed(t *testing.T) {
	narrow := func(g *Graph) Value { return g.Param("w", Type{tensor.F8E4M3, ShapeOf(3, 3)}) }
	for name, c := range map[string]struct {
		op    Op
		build func(g *Graph) Value
	}{
		"scales of rows": {Binary, func(g *Graph) Value { return g.Mul(g.Cast(narrow(g), tensor.F32), g.Param("scale", mat(3, 1))) }},
		"scales of blocks": {Dequantize, func(g *Graph) Value {
			return g.Dequantize(narrow(g), g.Param("scale", mat(2, 2)), DequantizeAttr{2, 2})
		}},
	} {
		t.Run(name, func(t *testing.T) {
			g := New()
			x := g.Param("x", mat(4, 3))
			w := c.build(g)
			dx := g.Gradients(g.SumSquares(g.Unary(Sin, g.Linear(x, w, 0))), []Value{x}, GradOptions{})[0]
			require.NoError(t, g.Err())
			factor := g.Node(dx).In[1]
			require.Equal(t, c.op, g.Node(factor).Op)
			require.NotEqual(t, w, factor)
		})
	}
}

func TestGradientsOfSharedAndInnerValues(t *testing.T) {
	s := newScene(t)
	x := s.normal("x", 4)
	h := s.Mul(x, x)
	loss := s.weighted(s.Mul(s.Unary(Sin, h), x))
	grads := s.Gradients(loss, []Value{x, h, loss}, GradOptions{})
	require.NoError(t, s.Err())
	s.close(s.differences(loss, "x"), s.value(grads[0]), 1e-7, "x, though h, which is made of it, is asked for as well")
	assert.Equal(t, []float64{1}, s.value(grads[2]))

	// The gradient of h: that of a param in its place.
	u := newScene(t)
	y, g := u.normal("x", 4), u.given("h", tensor.F32, ShapeOf(4), s.value(h)...)
	loss = u.weighted(u.Mul(u.Unary(Sin, g), y))
	u.close(u.differences(loss, "h"), s.value(grads[1]), 1e-7)
}

func TestGradientOfOutputs(t *testing.T) {
	s := newScene(t)
	d := s.Apply(GLUGrad, GLUAttr{SiLU}, s.normal("dy", 5), s.normal("x", 5), s.normal("y", 5))
	up := s.Out(d, 1)
	loss := s.weighted(s.Mul(up, up))
	names, vs := s.wrt("y") // the second output does not read y
	grads := s.Gradients(loss, append(vs, up), GradOptions{})
	require.NoError(t, s.Err())
	for i, name := range names {
		s.close(s.differences(loss, name), s.value(grads[i]), 1e-7, name)
	}
	assert.NotZero(t, s.value(grads[2])[0], "the second output itself")
}

func TestSecondDerivative(t *testing.T) {
	s := newScene(t)
	x, w := s.normal("x", 3, 4), s.positive("w", 4)
	first := s.Gradients(s.weighted(s.RMSNorm(x, w, 0.1)), []Value{x}, GradOptions{})[0]
	loss := s.SumSquares(first)
	second := s.Gradients(loss, []Value{x, w}, GradOptions{})
	require.NoError(t, s.Err())
	s.close(s.differences(loss, "x"), s.value(second[0]), 1e-6)
	s.close(s.differences(loss, "w"), s.value(second[1]), 1e-6)
}

func TestGradientRefusals(t *testing.T) {
	for want, build := range map[string]func(s *scene) []Value{
		"gradients: the loss has 4 elements, expected 1": func(s *scene) []Value {
			x := s.normal("x", 4)
			return s.Gradients(x, one(x), GradOptions{})
		},
		`gradients: the loss does not depend on param "y" f32[4]`: func(s *scene) []Value {
			x, y := s.normal("x", 4), s.normal("y", 4)
			return s.Gradients(s.SumSquares(x), []Value{x, y}, GradOptions{})
		},
		`gradients: the loss does not depend on param "x" f32[4]`: func(s *scene) []Value {
			x := s.normal("x", 4)
			return s.Gradients(s.SumSquares(s.Detach(x)), one(x), GradOptions{})
		},
		"no gradient flows from the log-sum-exp of Attention": func(s *scene) []Value {
			_, lse, q, _, _, _, _ := s.attention(head, 1, 2)
			return s.Gradients(s.weighted(lse), one(q), GradOptions{})
		},
		"Attention has no gradient where keys lie in pages": func(s *scene) []Value {
			a := head
			a.Page = 2
			q, k := s.normal("q", 2, 6), s.normal("k", 4, 3)
			o, _ := s.Graph.Attention(q, k, k, s.ids("lo", 0, 0), s.ids("hi", 1, 2), a, s.ids("pages", 1))
			return s.Gradients(s.weighted(o), one(q), GradOptions{})
		},
	} {
		s := newScene(t)
		build(s)
		require.ErrorContains(t, s.Err(), want)
	}
}

func TestDetach(t *testing.T) {
	s := newScene(t)
	x := s.positive("x", 4)
	// The gradient of x·stop(x) is stop(x), not 2x.
	grad := s.Gradients(s.Reduce(ReduceSum, s.Mul(x, s.Detach(x)), 0), one(x), GradOptions{})[0]
	require.NoError(t, s.Err())
	assert.Equal(t, s.args["x"].Data, s.value(grad))
}

func TestGradientOfCast(t *testing.T) {
	s := newScene(t)
	x := s.given("x", tensor.BF16, ShapeOf(3), 1, -2, 0.5)
	w := s.normal("w", 3)
	grad := s.Gradients(s.Reduce(ReduceSum, s.Mul(s.Cast(x, tensor.F32), w), 0), one(x), GradOptions{})[0]
	require.NoError(t, s.Err())
	assert.Equal(t, mat(3), s.Type(grad), "gradients are F32")
	assert.Equal(t, s.args["w"].Data, s.value(grad))

	// A slice of a bf16 value has an f32 gradient.
	y := s.given("y", tensor.BF16, ShapeOf(5), 1, 2, 3, 4, 5)
	grad = s.Gradients(s.Reduce(ReduceSum, s.Mul(s.Cast(s.Slice(y, 0, 1, 4), tensor.F32), w), 0), one(y), GradOptions{})[0]
	require.NoError(t, s.Err())
	assert.Equal(t, append(append([]float64{0}, s.args["w"].Data...), 0), s.value(grad))
}

// deep builds a network of segments whose loss depends on x, w and v.
func deep(s *scene, layers int) (loss Value, wrt []Value) {
	x, w, v, norm := s.normal("x", 5, 6), s.normal("w", 6, 6), s.normal("v", 6, 6), s.positive("norm", 6)
	h := x
	for i := range layers {
		s.SetSegment(i + 1)
		y := s.RMSNorm(h, norm, 1e-3)
		y = s.Dropout(s.GLU(s.Linear(y, w, 0), s.Linear(y, v, 0), GELU), s.key(), DropoutAttr{0.2, uint32(i)})
		h = s.Add(h, s.Softmax(y))
	}
	s.SetSegment(0)
	return s.SumSquares(h), []Value{x, w, v, norm}
}

func TestCheckpoint(t *testing.T) {
	kept, again := newScene(t), newScene(t)
	loss, wrt := deep(kept, 4)
	want := kept.Gradients(loss, wrt, GradOptions{})
	loss, wrt = deep(again, 4)
	before := len(again.Nodes)
	got := again.Gradients(loss, wrt, GradOptions{Checkpoint: true})
	require.NoError(t, again.Err())
	for i := range want {
		assert.Equal(t, kept.value(want[i]), again.value(got[i]), "the same operations give the same bits")
	}
	clones := 0
	for _, n := range again.Nodes[before:] {
		if n.Clone != 0 {
			clones++
		}
	}
	assert.Positive(t, clones)
	assert.LessOrEqual(t, clones, before, "nothing is computed again twice")
	assert.Greater(t, len(again.Nodes), len(kept.Nodes))
	// Backward reads no inner value of a segment of the forward pass.
	for _, n := range again.Nodes[before:] {
		for _, in := range n.In {
			p := again.Node(in)
			if in < Value(before) && p.Segment != 0 && p.Op != Param && p.Op != Const {
				assert.True(t, crosses(again.Graph, in, Value(before)), "%s is kept for backward", again.Describe(in))
			}
		}
	}
}

// crosses reports whether a node of another segment reads v in the forward pass.
func crosses(g *Graph, v, end Value) bool {
	for _, n := range g.Nodes[1:end] {
		for _, in := range n.In {
			if in == v && n.Segment != g.Node(v).Segment {
				return true
			}
		}
	}
	return false
}
