package graph_test

import (
	"context"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/backend/null"
	"github.com/lorafuse/lorafuse/dev/testdevice"
	"github.com/lorafuse/lorafuse/graph"
	"github.com/lorafuse/lorafuse/graph/exec"
	"github.com/lorafuse/lorafuse/internal/ir"
	"github.com/lorafuse/lorafuse/tensor"
)

// counted counts compilations and open programs of a device, and can block runs at a gate.
type counted struct {
	backend.Device
	compiled, open, runs atomic.Int64
	gate                 chan struct{} // nil if runs need not wait
}

type countedExecutable struct {
	backend.Executable
	dev  *counted
	busy atomic.Bool
}

func (d *counted) Compile(p *ir.Program) (backend.Executable, error) {
	e, err := d.Device.Compile(p)
	if err != nil {
		return nil, err
	}
	d.compiled.Add(1)
	d.open.Add(1)
	return &countedExecutable{Executable: e, dev: d}, nil
}

func (e *countedExecutable) Run(ctx context.Context, args backend.Args) (backend.Fence, error) {
	if e.busy.Swap(true) {
		return nil, fmt.Errorf("two runs at a time")
	}
	defer e.busy.Store(false)
	if e.dev.gate != nil {
		select {
		case <-e.dev.gate:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	e.dev.runs.Add(1)
	return e.Executable.Run(ctx, args)
}

func (e *countedExecutable) Close() error {
	e.dev.open.Add(-1)
	return e.Executable.Close()
}

// affine is s·x + b of numbers that i makes.
func affine(g *graph.Graph, i int, s float64) (graph.Tensor, []float32) {
	x, b := numbers(6, uint64(i)), numbers(3, uint64(i)+100)
	want := make([]float32, 6)
	for j := range want {
		want[j] = float32(x[j]*float32(s)) + b[j%3]
	}
	return g.Floats(x, 2, 3).Scale(s).Add(g.Floats(b, 3)), want
}

func check(t require.TestingT, want []float32, got *tensor.Tensor, err error) {
	require.NoError(t, err)
	values, err := got.Float32s()
	require.NoError(t, err)
	require.Equal(t, want, values)
}

func TestEvaluatorKeepsFormulas(t *testing.T) {
	ctx, dev := context.Background(), &counted{Device: testdevice.Open(t, backend.Options{})}
	e := graph.NewEvaluator(dev, graph.EvaluatorOptions{Plans: 2})
	for i := range 5 { // new graphs, other data, other nodes before
		g := graph.New()
		for range i {
			g.Floats(numbers(4, 9), 4).Softmax()
		}
		y, want := affine(g, i, 3)
		for range 2 {
			out, err := y.Eval(ctx, e)
			check(t, want, out, err)
		}
	}
	assert.EqualValues(t, 1, dev.compiled.Load(), "one formula")
	assert.Equal(t, graph.EvaluatorStats{Hits: 9, Misses: 1, Plans: 1}, e.Stats())

	// A different number, shape, attribute or operand makes a different formula.
	g := graph.New()
	x, z := g.Floats(numbers(6, 1), 2, 3), g.Floats(numbers(6, 2), 2, 3)
	formulas := []graph.Tensor{
		x.Scale(2), x.Scale(4), x.Reshape(ir.Static(6)).Scale(2), x.Slice(0, 0, 1), x.Slice(0, 1, 2), x.Slice(1, 0, 1),
		x.Add(x), x.Add(z), x.Apply(ir.Neg), x.Apply(ir.Exp), x.MatMulT(z), x.Transpose(1, 0).MatMul(z),
	}
	before := dev.compiled.Load()
	for _, y := range formulas {
		_, err := y.Eval(ctx, e)
		require.NoError(t, err)
	}
	assert.EqualValues(t, before+int64(len(formulas)), dev.compiled.Load())
	assert.EqualValues(t, 2, dev.open.Load(), "two are kept")
	s := e.Stats()
	assert.Equal(t, 2, s.Plans)
	assert.Equal(t, len(formulas)-1, s.Evictions)
	hits := s.Hits
	_, err := formulas[len(formulas)-2].Eval(ctx, e) // of those kept the older
	require.NoError(t, err)
	_, err = formulas[0].Eval(ctx, e) // the other one is evicted
	require.NoError(t, err)
	_, err = formulas[len(formulas)-2].Eval(ctx, e)
	require.NoError(t, err)
	assert.Equal(t, hits+2, e.Stats().Hits)

	require.NoError(t, e.Close())
	require.NoError(t, e.Close())
	assert.Zero(t, dev.open.Load())
	_, err = x.Eval(ctx, e)
	require.ErrorIs(t, err, backend.ErrClosed)
	_, err = x.EvalAsync(ctx, e)
	require.ErrorIs(t, err, backend.ErrClosed)
}

// One tensor used twice and two tensors make different formulas, and so does another order of results. The same result
// may be requested twice.
func TestEvaluatorTellsOperandsApart(t *testing.T) {
	e := graph.NewEvaluator(device(t), graph.EvaluatorOptions{})
	defer func() { require.NoError(t, e.Close()) }()
	ctx, g := context.Background(), graph.New()
	x, y := g.Floats([]float32{5}, 1), g.Floats([]float32{3}, 1)
	for _, c := range []struct {
		ts   []graph.Tensor
		want []float32
	}{
		{[]graph.Tensor{x.Sub(y)}, []float32{2}}, {[]graph.Tensor{y.Sub(x)}, []float32{-2}}, {[]graph.Tensor{x.Sub(x)}, []float32{0}},
		{[]graph.Tensor{x, y}, []float32{5, 3}}, {[]graph.Tensor{y, x}, []float32{3, 5}}, {[]graph.Tensor{x, x}, []float32{5, 5}},
	} {
		for range 2 {
			out, err := e.Eval(ctx, c.ts...)
			require.NoError(t, err)
			for i, want := range c.want {
				check(t, []float32{want}, out[i], nil)
			}
		}
	}
}

// Many goroutines evaluate graphs of a few formulas with a cache that is too small. Each gets its own results, and no
// program runs twice at a time.
func TestEvaluatorFromManyGoroutines(t *testing.T) {
	ctx, dev := context.Background(), &counted{Device: device(t)}
	e := graph.NewEvaluator(dev, graph.EvaluatorOptions{Plans: 3})
	shared, sharedWant := affine(graph.New(), 77, 5)
	var wait sync.WaitGroup
	for worker := range 8 {
		wait.Go(func() {
			for i := range 12 {
				y, want := affine(graph.New(), 100*worker+i, float64(i%5+1))
				out, err := y.Eval(ctx, e)
				if assert.NoError(t, err) {
					check(t, want, out, nil)
				}
				p, err := y.EvalAsync(ctx, e)
				if assert.NoError(t, err) {
					outs, err := p.Wait(ctx)
					check(t, want, outs[0], err)
				}
				out, err = shared.Eval(ctx, e)
				if assert.NoError(t, err) {
					check(t, sharedWant, out, nil)
				}
			}
		})
	}
	wait.Wait()
	assert.LessOrEqual(t, dev.open.Load(), int64(3))
	require.NoError(t, e.Close())
	assert.Zero(t, dev.open.Load())
}

// Unused plans are evicted if memory is missing for a new one.
func TestEvaluatorMakesRoom(t *testing.T) {
	dev := &null.Device{Memory: 3 << 20}
	e := graph.NewEvaluator(dev, graph.EvaluatorOptions{})
	for n := 1; n <= 3; n++ {
		_, err := graph.New().Ones(n, 128<<10).Apply(ir.Exp).Eval(context.Background(), e)
		require.NoError(t, err, n)
	}
	assert.Equal(t, 2, e.Stats().Evictions)
	_, err := graph.New().Ones(9, 128<<10).Apply(ir.Exp).Eval(context.Background(), e)
	require.ErrorIs(t, err, backend.ErrOutOfMemory)
	require.NoError(t, e.Close())
	now, _ := dev.Held()
	assert.Zero(t, now)
}

func TestEvaluatorMistakes(t *testing.T) {
	ctx, dev := context.Background(), &counted{Device: device(t)}
	e := graph.NewEvaluator(dev, graph.EvaluatorOptions{})
	defer func() { require.NoError(t, e.Close()) }()
	g := graph.New()
	w := g.Param("weight", tensor.F32, ir.Static(2))
	_, err := w.Eval(ctx, e)
	require.ErrorIs(t, err, exec.ErrArgument)
	require.ErrorContains(t, err, `param "weight" wants f32[2], found nothing; give it by EvalWith, or make it by Graph.Value`)
	_, err = e.EvalWith(ctx, []graph.Tensor{w}, map[string]*tensor.Tensor{"weight": floats(t, []float32{1}, 1)}, nil)
	require.ErrorContains(t, err, "found F32[1] with 4 bytes, expected 8")
	_, err = e.Eval(ctx, graph.Tensor{})
	require.ErrorIs(t, err, ir.ErrGraph)
	_, err = e.EvalAsync(ctx)
	require.ErrorIs(t, err, ir.ErrGraph)
	_, err = e.Eval(ctx, w, graph.New().Ones(2))
	require.ErrorContains(t, err, "another graph")
	bad := graph.New()
	_, err = bad.Ones(2).Add(bad.Ones(3)).Eval(ctx, e)
	require.ErrorContains(t, err, "do not fit each other")
	nan, _ := affine(graph.New(), 1, math.NaN())
	_, err = nan.Eval(ctx, e)
	require.NoError(t, err)
}
