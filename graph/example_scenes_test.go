package graph_test

import (
	"context"
	"fmt"
	"log"
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/backend/cpu"
	"github.com/lorafuse/lorafuse/dev/testdevice"
	"github.com/lorafuse/lorafuse/graph"
	"github.com/lorafuse/lorafuse/internal/ir"
	"github.com/lorafuse/lorafuse/lora"
	"github.com/lorafuse/lorafuse/tensor"
)

// An adapter of rank 2 on rows of 3: a formula without names, evaluated twice. The second time, in a graph of its own,
// nothing is compiled.
func ExampleEvaluator() {
	dev, err := cpu.Open(backend.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer dev.Close()
	e := graph.NewEvaluator(dev, graph.EvaluatorOptions{})
	defer e.Close()
	adapter := &lora.Layer{In: 3, Out: 2, Rank: 2, Alpha: 4, A: []float32{1, 0, 1, 0, 1, 0}, B: []float32{1, 2, 3, 4}}

	for _, x := range [][]float32{{1, 2, 3}, {0, 1, 0}} {
		g := graph.New()
		y := adapter.Apply(g.Floats(x, 1, 1, 3), graph.Tensor{})
		fmt.Println(y.Type()) // known before anything runs
		out, err := y.Eval(context.Background(), e)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(out.Float32s())
	}
	fmt.Println(e.Stats().Misses, "compiled,", e.Stats().Hits, "found")
	// Output:
	// f32[1,1,2]
	// [16 40] <nil>
	// f32[1,1,2]
	// [4 8] <nil>
	// 1 compiled, 1 found
}

// Two evaluations are queued; the host continues while they run.
func ExampleEvaluator_EvalAsync() {
	dev, err := cpu.Open(backend.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer dev.Close()
	e := graph.NewEvaluator(dev, graph.EvaluatorOptions{})
	defer e.Close()
	ctx := context.Background()
	var pending []*graph.Pending
	for i := range 2 {
		g := graph.New()
		p, err := g.Floats([]float32{1, 2, 3, 4}, 2, 2).Slice(0, -1, graph.End).Scale(float64(i+1)).EvalAsync(ctx, e)
		if err != nil {
			log.Fatal(err)
		}
		pending = append(pending, p)
	}
	for _, p := range pending {
		out, err := p.Wait(ctx)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(out[0].Float32s())
	}
	// Output:
	// [3 4] <nil>
	// [6 8] <nil>
}

// scene is a chain of adapters on an input.
type scene struct {
	name     string
	shape    []int // of the input
	channels []int // between the adapters, after the last axis of the input
	rank     int
	alpha    float32
}

func scenes() []scene {
	list := []scene{
		{"basic", []int{1, 16}, []int{24}, 4, 8},
		{"batched", []int{8, 64}, []int{48}, 8, 16},
		{"chain", []int{4, 32}, []int{24, 40}, 4, 8},
	}
	for _, rank := range []int{2, 4, 8, 16} {
		list = append(list, scene{fmt.Sprintf("rank %d", rank), []int{4, 64}, []int{80}, rank, 16})
	}
	for _, shape := range [][]int{{1, 10, 128}, {4, 20, 128}, {8, 5, 128}} {
		list = append(list, scene{fmt.Sprint(shape), shape, []int{96}, 8, 16})
	}
	return list
}

// layers makes the adapters of a scene, none of whose matrices is zero.
func (s scene) layers(t testing.TB, dropout float64) (ls []*lora.Layer) {
	in := s.shape[len(s.shape)-1]
	for i, out := range s.channels {
		l, err := lora.NewLayer(in, out, s.rank, s.alpha, uint64(i))
		require.NoError(t, err)
		copy(l.B, numbers(len(l.B), uint64(50+i)))
		l.Dropout, l.Stream = dropout, uint32(i)
		ls, in = append(ls, l), out
	}
	return ls
}

// eager computes a scene layer by layer, without a graph.
func (s scene) eager(t testing.TB, ls []*lora.Layer, x []float32) []float32 {
	for _, l := range ls {
		y := make([]float32, len(x)/l.In*l.Out)
		require.NoError(t, l.ForwardDropout(y, x, len(x)/l.In, seed, step))
		x = y
	}
	return x
}

const seed, step = 7, 3

// lazy builds a scene as a formula.
func (s scene) lazy(ls []*lora.Layer, x, key graph.Tensor) graph.Tensor {
	for _, l := range ls {
		x = l.Apply(x, key)
	}
	return x
}

// apart returns the largest difference, relative to the largest number.
func apart(want, got []float32) float64 {
	var diff, size float64
	for i := range want {
		diff = max(diff, math.Abs(float64(want[i])-float64(got[i])))
		size = max(size, math.Abs(float64(want[i])))
	}
	return diff / size
}

// Lazy and eager evaluation agree in values and gradients, with and without dropout, on the backend of the build's
// tests and on the CPU. Gradients match finite differences.
func TestScenes(t *testing.T) {
	e, once, host := evaluator(t, testdevice.Backend()), evaluator(t, testdevice.Backend()), evaluator(t, backend.CPU)
	for _, s := range scenes() {
		for _, dropout := range []float64{0, 0.25} {
			t.Run(fmt.Sprintf("%s, dropout %v", s.name, dropout), func(t *testing.T) {
				ls, x := s.layers(t, dropout), numbers(product(s.shape), 90)
				s.evaluate(t, e, ls, x)
				got := s.evaluate(t, e, ls, x) // in a graph of its own
				want := s.eager(t, ls, x)
				assert.LessOrEqual(t, apart(want, values(t, got[0])), 1e-6)
				assert.Equal(t, append(s.shape[:len(s.shape)-1:len(s.shape)-1], s.channels[len(s.channels)-1]), got[0].Shape)

				params := [][]float32{x}
				for _, l := range ls {
					params = append(params, l.A, l.B)
				}
				for i, p := range params {
					assert.LessOrEqual(t, s.gradientError(t, ls, x, p, values(t, got[1+i])), 2e-5, "gradient %d", i)
				}
				ofCPU := s.evaluate(t, host, ls, x)
				for i := range ofCPU {
					assert.LessOrEqual(t, apart(values(t, ofCPU[i]), values(t, got[i])), 1e-6, "result %d beside the CPU's", i)
				}
				if dropout == 0 {
					for i, v := range s.atOnce(t, once, ls, x) {
						assert.LessOrEqual(t, apart(v, values(t, got[i])), 1e-6, "result %d at once", i)
					}
				}
			})
		}
	}
	st := e.Stats()
	assert.Equal(t, st.Misses, st.Hits, "the second graph of each scene is compiled already")
}

// evaluator evaluates on a device of a backend for the time of a test.
func evaluator(t *testing.T, name string) *graph.Evaluator {
	dev := testdevice.OpenOn(t, name, backend.Options{})
	e := graph.NewEvaluator(dev, graph.EvaluatorOptions{})
	t.Cleanup(func() { assert.NoError(t, e.Close()) })
	return e
}

// evaluate makes a scene's result and the gradients for its input and its matrices, of
// the sum of the result's elements with weights, by one graph.
func (s scene) evaluate(t testing.TB, e *graph.Evaluator, ls []*lora.Layer, numbersOfX []float32) []*tensor.Tensor {
	g := graph.New()
	x := g.Floats(numbersOfX, s.shape...)
	y := s.lazy(ls, x, g.Key(seed, step))
	wrt := []graph.Tensor{x}
	for _, l := range ls {
		wrt = append(wrt, l.Params(g)...)
	}
	n := y.Type().Shape.Elements(nil)
	weighted := y.Mul(g.Floats(numbers(n, 91), y.Type().Shape.Resolve(nil)...))
	grads := g.Gradients(weighted.Reshape(ir.Static(n)).Sum(0), wrt, false)
	outs, err := e.Eval(context.Background(), append([]graph.Tensor{y}, grads...)...)
	require.NoError(t, err)
	return outs
}

// atOnce computes the same as evaluate without dropout, with one graph per operation.
func (s scene) atOnce(t testing.TB, e *graph.Evaluator, ls []*lora.Layer, numbersOfX []float32) [][]float32 {
	// The matrix of n columns is made by an operation on others of so many columns.
	type matrix struct {
		cols int
		x    []float32
	}
	do := func(op func(in []graph.Tensor) graph.Tensor, in ...matrix) matrix {
		g := graph.New()
		var ts []graph.Tensor
		for _, m := range in {
			ts = append(ts, g.Floats(m.x, len(m.x)/m.cols, m.cols))
		}
		out, err := op(ts).Eval(context.Background(), e)
		require.NoError(t, err)
		return matrix{out.Shape[1], values(t, out)}
	}
	timesT := func(in []graph.Tensor) graph.Tensor { return in[0].MatMulT(in[1]) }
	times := func(in []graph.Tensor) graph.Tensor { return in[0].MatMul(in[1]) }
	tTimes := func(in []graph.Tensor) graph.Tensor { return in[0].Transpose(1, 0).MatMul(in[1]) }

	inputs, downs := []matrix{{s.shape[len(s.shape)-1], numbersOfX}}, []matrix(nil)
	for i, l := range ls {
		h := do(timesT, inputs[i], matrix{l.In, l.A})
		y := do(timesT, h, matrix{l.Rank, l.B})
		y = do(func(in []graph.Tensor) graph.Tensor { return in[0].Scale(float64(l.Scale())) }, y)
		inputs, downs = append(inputs, y), append(downs, h)
	}
	y := inputs[len(ls)]
	results := make([][]float32, 2+2*len(ls))
	results[0] = y.x
	dy := matrix{y.cols, numbers(len(y.x), 91)}
	for i, l := range slices.Backward(ls) {
		dy = do(func(in []graph.Tensor) graph.Tensor { return in[0].Scale(float64(l.Scale())) }, dy)
		dh := do(times, dy, matrix{l.Rank, l.B})
		results[2+2*i], results[3+2*i] = do(tTimes, dh, inputs[i]).x, do(tTimes, dy, downs[i]).x
		dy = do(times, dh, matrix{l.In, l.A})
	}
	results[1] = dy.x
	return results
}

// gradientError compares some elements of a gradient with central differences, which are exact here except for
// rounding: the loss is linear in each element.
func (s scene) gradientError(t testing.TB, ls []*lora.Layer, x, param, got []float32) float64 {
	loss := func() (sum float64) {
		y := s.eager(t, ls, x)
		for i, c := range numbers(len(y), 91) {
			sum += float64(c) * float64(y[i])
		}
		return sum
	}
	require.Len(t, got, len(param))
	var diff, size float64
	for i, v := range got {
		size = max(size, math.Abs(float64(v)))
		if i%(len(got)/16+1) != 0 {
			continue
		}
		was := param[i]
		param[i] = was + 1
		up := loss()
		param[i] = was - 1
		down := loss()
		param[i] = was
		diff = max(diff, math.Abs((up-down)/2-float64(v)))
	}
	require.Positive(t, size)
	return diff / size
}
