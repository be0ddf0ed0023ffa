package graph_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/dev/testdevice"
	"github.com/lorafuse/lorafuse/graph"
	"github.com/lorafuse/lorafuse/graph/exec"
	"github.com/lorafuse/lorafuse/internal/ir"
	"github.com/lorafuse/lorafuse/tensor"
)

// naive is x · w over leading axes that are repeated to lead, in float64.
func naive(x, w []float32, xs, ws, lead []int, trans bool) []float64 {
	m, k, n := xs[len(xs)-2], xs[len(xs)-1], ws[len(ws)-1]
	if trans {
		n = ws[len(ws)-2]
	}
	var out []float64
	at := make([]int, len(lead))
	for range product(lead) {
		xo, wo := offset(at, xs[:len(xs)-2])*m*k, offset(at, ws[:len(ws)-2])*k*n
		for i := range m {
			for j := range n {
				sum := 0.0
				for l := range k {
					y := w[wo+l*n+j]
					if trans {
						y = w[wo+j*k+l]
					}
					sum += float64(x[xo+i*k+l]) * float64(y)
				}
				out = append(out, sum)
			}
		}
		for i := len(at) - 1; i >= 0; i-- {
			if at[i]++; at[i] < lead[i] {
				break
			}
			at[i] = 0
		}
	}
	return out
}

// offset returns the index of at in a shape with broadcast axes.
func offset(at, axes []int) int {
	o := 0
	for i, n := range axes {
		a := at[len(at)-len(axes)+i]
		if n == 1 {
			a = 0
		}
		o = o*n + a
	}
	return o
}

func product(dims []int) int {
	n := 1
	for _, d := range dims {
		n *= d
	}
	return n
}

// Products of operands of any rank match the definition.
func TestProductsOfAnyRank(t *testing.T) {
	dev := device(t)
	e := graph.NewEvaluator(dev, graph.EvaluatorOptions{Plans: 4})
	defer func() { require.NoError(t, e.Close()) }()
	rapid.Check(t, func(r *rapid.T) {
		size := rapid.IntRange(1, 4)
		m, k, n := size.Draw(r, "m"), size.Draw(r, "k"), size.Draw(r, "n")
		lead := rapid.SliceOfN(size, 0, 2).Draw(r, "lead")
		side := func(name string) []int { // some of the leading axes, some of one element
			own := append([]int(nil), lead[rapid.IntRange(0, len(lead)).Draw(r, name):]...)
			for i := range own {
				if rapid.Bool().Draw(r, name+" repeats") {
					own[i] = 1
				}
			}
			return own
		}
		xl, wl := side("x"), side("w")
		both := make([]int, max(len(xl), len(wl)))
		for i := range both {
			both[i] = 1
			for _, s := range [][]int{xl, wl} {
				if j := i - len(both) + len(s); j >= 0 {
					both[i] = max(both[i], s[j])
				}
			}
		}
		trans := rapid.Bool().Draw(r, "trans")
		xs, ws := append(xl, m, k), append(wl, k, n)
		if trans {
			ws = append(wl, n, k)
		}
		x, w := numbers(product(xs), 1), numbers(product(ws), 2)
		g := graph.New()
		multiply := graph.Tensor.MatMul
		if trans {
			multiply = graph.Tensor.MatMulT
		}
		y, err := multiply(g.Floats(x, xs...), g.Floats(w, ws...)).Eval(context.Background(), e)
		require.NoError(r, err)
		require.Equal(r, append(both, m, n), y.Shape)
		got, err := y.Float32s()
		require.NoError(r, err)
		require.InDeltaSlice(r, naive(x, w, xs, ws, both, trans), toFloat64(got), 1e-5)
	})
}

func toFloat64(x []float32) []float64 {
	y := make([]float64, len(x))
	for i, v := range x {
		y[i] = float64(v)
	}
	return y
}

func TestVectorsAndBoundedRows(t *testing.T) {
	g := graph.New()
	m := g.Floats([]float32{1, 2, 3, 4, 5, 6}, 2, 3)
	v, u := g.Floats([]float32{1, 10, 100}, 3), g.Floats([]float32{1, -1}, 2)
	x := g.Param("x", tensor.F32, g.Bound("n", 5), ir.Static(2), ir.Static(3))
	rows := x.MatMulT(m)
	require.NoError(t, g.Err())
	assert.Equal(t, "f32[v1,2,2]", rows.Type().String())
	e := graph.NewEvaluator(device(t), graph.EvaluatorOptions{})
	defer func() { require.NoError(t, e.Close()) }()
	ctx := context.Background()
	out, err := e.Eval(ctx, m.MatMul(v), u.MatMul(m), v.MatMul(v), v.MatMulT(m))
	require.NoError(t, err)
	for i, want := range []struct {
		shape  []int
		values []float32
	}{{[]int{2}, []float32{321, 654}}, {[]int{3}, []float32{-3, -3, -3}}, {[]int{}, []float32{10101}}, {[]int{2}, []float32{321, 654}}} {
		got, err := out[i].Float32s()
		require.NoError(t, err)
		assert.Equal(t, want.shape, out[i].Shape)
		assert.Equal(t, want.values, got)
	}
	for _, n := range []int{2, 5, 1} {
		data := floats(t, numbers(n*6, 3), n, 2, 3)
		out, err = e.EvalWith(ctx, []graph.Tensor{rows}, map[string]*tensor.Tensor{"x": data}, map[string]int{"n": n})
		require.NoError(t, err)
		require.Equal(t, []int{n, 2, 2}, out[0].Shape)
		got, err := out[0].Float32s()
		require.NoError(t, err)
		want := naive(numbers(n*6, 3), []float32{1, 2, 3, 4, 5, 6}, []int{2 * n, 3}, []int{2, 3}, nil, true)
		assert.InDeltaSlice(t, want, toFloat64(got), 1e-5)
	}
}

// Errors of products name the shapes and suggest a fix.
func TestProductErrors(t *testing.T) {
	none := graph.Tensor{}
	for want, build := range map[string]func(g *graph.Graph){
		"matmul: inner sizes 64 and 128 differ: x [8,64] · w [128,32]; x must end in 128, or w have inner size 64": func(g *graph.Graph) { g.Zeros(8, 64).MatMul(g.Zeros(128, 32)) },
		"matmul: inner sizes 64 and 32 differ: x [8,64] · w [32,64]; use MatMulT, which reads w [out,in], or transpose w": func(g *graph.Graph) {
			g.Zeros(8, 64).MatMul(g.Zeros(32, 64))
		},
		"matmul transposed: inner sizes 64 and 32 differ: x [2,8,64] · w [64,32]ᵀ; use MatMul, which reads w [in,out], or transpose w": func(g *graph.Graph) {
			g.Zeros(2, 8, 64).MatMulT(g.Zeros(64, 32))
		},
		"linear: inner sizes 64 and 32 differ: x [8,64] · w [64,32]ᵀ; transpose w, which is read [out,in]": func(g *graph.Graph) { g.Zeros(8, 64).Linear(g.Zeros(64, 32), none) },
		"matmul: inner sizes 8 and 64 differ: x [64,8] · w [64,32]; transpose x":                           func(g *graph.Graph) { g.Zeros(64, 8).MatMul(g.Zeros(64, 32)) },
		"leading axes [2] and [3] do not fit each other: x [2,8,4] · w [3,4,5]":                            func(g *graph.Graph) { g.Zeros(2, 8, 4).MatMul(g.Zeros(3, 4, 5)) },
		"linear: w [2,3,4], expected a matrix [out,in]":                                                    func(g *graph.Graph) { g.Zeros(8, 4).Linear(g.Zeros(2, 3, 4), none) },
		"linear: x is a scalar": func(g *graph.Graph) { g.Zeros().Linear(g.Zeros(2, 2), none) },
		"lora: x [2,3,4] and h [6,2] differ in their leading axes; h is LoRADown of x":           func(g *graph.Graph) { g.Zeros(2, 3, 4).LoRA(g.Zeros(5, 4), none, g.Zeros(6, 2), g.Zeros(5, 2), 1) },
		"lora down: inner sizes 4 and 3 differ: x [2,3,4] · w [2,3]ᵀ":                            func(g *graph.Graph) { g.Zeros(2, 3, 4).LoRADown(g.Zeros(2, 3), none, ir.DropoutAttr{}) },
		"[2,3] and [2,4] do not fit each other at axis 1: sizes must be equal, or one of them 1": func(g *graph.Graph) { g.Zeros(2, 3).Add(g.Zeros(2, 4)) },
		"two leading axes are bounded, and cannot be joined to rows": func(g *graph.Graph) {
			g.Const(0, g.Bound("a", 2), g.Bound("b", 2), ir.Static(4)).MatMul(g.Zeros(4, 5))
		},
	} {
		g := graph.New()
		build(g)
		require.ErrorIs(t, g.Err(), ir.ErrGraph, want)
		assert.ErrorContains(t, g.Err(), want)
		assert.ErrorContains(t, g.Err(), "product_test.go:", want)
	}
}

// A chain of products, scale and sum becomes one product with a longer inner axis, for operands of any rank. The
// backend of the build's tests computes the same as loops do.
func TestHandWrittenLoRAIsOneProduct(t *testing.T) {
	dev := testdevice.Open(t, backend.Options{})
	e := graph.NewEvaluator(dev, graph.EvaluatorOptions{})
	defer func() { require.NoError(t, e.Close()) }()
	for _, shape := range [][]int{{6, 10}, {2, 3, 10}, {1, 2, 3, 10}, {10}} {
		g := graph.New()
		chain := func(x, w, a, b graph.Tensor) graph.Tensor {
			return x.MatMulT(a).MatMulT(b).Scale(2).Add(x.MatMulT(w))
		}
		y := chain(g.Param("x", tensor.F32, ir.ShapeOf(shape...)...), g.Param("w", tensor.F32, ir.ShapeOf(7, 10)...),
			g.Param("a", tensor.F32, ir.ShapeOf(4, 10)...), g.Param("b", tensor.F32, ir.ShapeOf(7, 4)...))
		for _, supports := range []exec.Supports{nil, dev.Supports} {
			p, err := g.Program().Result("y", y).Plan(supports)
			require.NoError(t, err)
			require.Len(t, p.Launches, 2, "%v\n%v", shape, p)
			assert.Equal(t, ir.Gemm, p.Launches[0].Op)
			assert.Contains(t, p.String(), "Gemm{NT·2 NT}", fmt.Sprint(shape))
		}

		x, w, a, b := numbers(product(shape), 1), numbers(70, 2), numbers(40, 3), numbers(28, 4)
		g = graph.New()
		out, err := chain(g.Floats(x, shape...), g.Floats(w, 7, 10), g.Floats(a, 4, 10), g.Floats(b, 7, 4)).Eval(context.Background(), e)
		require.NoError(t, err)
		rows := len(x) / 10
		want := naive(x, w, []int{rows, 10}, []int{7, 10}, nil, true)
		var down []float32
		for _, v := range naive(x, a, []int{rows, 10}, []int{4, 10}, nil, true) {
			down = append(down, float32(v))
		}
		for i, v := range naive(down, b, []int{rows, 4}, []int{7, 4}, nil, true) {
			want[i] += 2 * v
		}
		for i, v := range values(t, out) {
			assert.InDelta(t, want[i], v, 5e-6, "%v, element %d", shape, i)
		}
	}
}
