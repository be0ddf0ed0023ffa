package graph_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"runtime"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/backend/cpu"
	"github.com/lorafuse/lorafuse/graph"
	"github.com/lorafuse/lorafuse/graph/conformance"
	"github.com/lorafuse/lorafuse/graph/exec"
	"github.com/lorafuse/lorafuse/internal/ir"
	"github.com/lorafuse/lorafuse/tensor"
)

func device(t testing.TB) backend.Device {
	t.Helper()
	dev, err := cpu.Open(backend.Options{})
	require.NoError(t, err)
	// Eval must wait for the work that it starts; delays and poison show whether it does.
	wild := conformance.Chaos(dev, 5)
	t.Cleanup(func() { require.NoError(t, wild.Close()) })
	return wild
}

func floats(t testing.TB, x []float32, shape ...int) *tensor.Tensor {
	t.Helper()
	v, err := tensor.FromFloat32s(x, shape...)
	require.NoError(t, err)
	return &v
}

func ints(x ...int32) *tensor.Tensor {
	v := &tensor.Tensor{DType: tensor.I32, Shape: []int{len(x)}}
	for _, i := range x {
		v.Data = binary.LittleEndian.AppendUint32(v.Data, uint32(i))
	}
	return v
}

func key(t testing.TB) *tensor.Tensor {
	t.Helper()
	v := ints(1, 2, 3)
	v.DType = tensor.U32
	return v
}

func eval(t *testing.T, ts []graph.Tensor, args map[string]*tensor.Tensor, dims map[string]int) [][]float32 {
	t.Helper()
	out, err := graph.Eval(context.Background(), device(t), ts, args, dims)
	require.NoError(t, err)
	values := make([][]float32, len(out))
	for i, v := range out {
		values[i], err = v.Float32s()
		require.NoError(t, err)
	}
	return values
}

// TestMethods runs every method of Tensor on small numbers.
func TestMethods(t *testing.T) {
	g := graph.New()
	s := ir.Static
	x := g.Param("x", tensor.F32, s(2), s(2))
	y := g.Param("y", tensor.F32, s(2), s(2))
	row := g.Param("row", tensor.F32, s(2))
	ids := g.Param("ids", tensor.I32, s(2))
	lo, hi := g.Param("lo", tensor.I32, s(2)), g.Param("hi", tensor.I32, s(2))
	offset := g.Param("offset", tensor.I32, s(1))
	random := g.Param("key", tensor.U32, s(3))
	one := g.Const(1)
	p2, m2, v2 := x.AdamW(y, y.Mul(y), y, g.Const(0.5, s(3)), one, ir.AdamWAttr{Beta1: 0.5, Beta2: 0.5, Eps: 1})
	h := x.LoRADown(row.Reshape(s(1), s(2)), graph.Tensor{}, ir.DropoutAttr{})
	dropped := x.LoRADown(row.Reshape(s(1), s(2)), random, ir.DropoutAttr{P: 0.5})
	cases := []struct {
		name string
		t    graph.Tensor
		want []float32
	}{
		{"Add", x.Add(row), []float32{11, 22, 13, 24}},
		{"Sub", x.Sub(y), []float32{-4, -4, -4, -4}},
		{"Mul", x.Mul(y), []float32{5, 12, 21, 32}},
		{"Div", row.Div(x), []float32{10, 10, 10. / 3, 5}},
		{"Min", x.Min(g.Const(2.5)), []float32{1, 2, 2.5, 2.5}},
		{"Scale", x.Scale(2), []float32{2, 4, 6, 8}},
		{"AddScalar", x.AddScalar(-1), []float32{0, 1, 2, 3}},
		{"Apply", x.Apply(ir.Neg), []float32{-1, -2, -3, -4}},
		{"Cast", x.Cast(tensor.BF16), []float32{1, 2, 3, 4}},
		{"Reshape", x.Reshape(s(4)).Add(g.Const(0.5, s(4))), []float32{1.5, 2.5, 3.5, 4.5}},
		{"Transpose", x.Transpose(1, 0), []float32{1, 3, 2, 4}},
		{"Slice", x.Slice(1, 1, 2), []float32{2, 4}},
		{"Sum", x.Sum(0), []float32{4, 6}},
		{"SumSquares", x.SumSquares(), []float32{30}},
		{"ArgMax", x.ArgMax(), []float32{1, 1}},
		{"Softmax", g.Const(3, s(1), s(2)).Softmax(), []float32{0.5, 0.5}},
		{"MatMul", x.MatMul(y), []float32{19, 22, 43, 50}},
		{"MatMulT", x.MatMulT(y), []float32{17, 23, 39, 53}},
		{"Linear", x.Linear(y, row), []float32{27, 43, 49, 73}},
		{"Linear without bias", x.Linear(y, graph.Tensor{}), []float32{17, 23, 39, 53}},
		{"LoRADown", h, []float32{50, 110}},
		{"LoRADown with dropout", dropped.Sub(x.Dropout(random, ir.DropoutAttr{P: 0.5}).MatMulT(row.Reshape(s(1), s(2)))), []float32{0, 0}},
		{"LoRA", x.LoRA(y, row, h, row.Reshape(s(2), s(1)), 0.5), []float32{27 + 250, 43 + 500, 49 + 550, 73 + 1100}},
		{"Gemm", g.Gemm([]ir.Product{{A: x.Value(), B: y.Value(), Alpha: 2}}, row, x), []float32{10 + 38 + 1, 20 + 44 + 2, 10 + 86 + 3, 20 + 100 + 4}},
		{"Where", x.Compare(ir.Greater, g.Const(2)).Where(x, y), []float32{5, 6, 3, 4}},
		{"Detach", x.Detach(), []float32{1, 2, 3, 4}},
		{"RMSNorm", g.Const(2, s(1), s(2)).RMSNorm(row, 0), []float32{10, 20}},
		{"GLU", g.Const(0, s(2), s(2)).GLU(x, ir.SiLU), []float32{0, 0, 0, 0}},
		{"RoPE", x.RoPE(g.Param("zero", tensor.I32, s(2)).RoPETable(g.Const(1, s(1)), 1), 2), []float32{1, 2, 3, 4}},
		{"RoPEInterleaved", x.RoPEInterleaved(g.Const(1, s(2), s(2)), 2), []float32{1 - 2, 1 + 2, 3 - 4, 3 + 4}},
		{"Attention", g.Const(0, s(2), s(2)).Attention(x, y, lo, hi, ir.AttentionAttr{Heads: 1, KVHeads: 1, HeadDim: 2, Scale: 1}), []float32{5, 6, 6, 7}},
		{"Gather", x.Gather(ids), []float32{3, 4, 1, 2}},
		{"UpdateRows", x.UpdateRows(row.Reshape(s(1), s(2)), offset), []float32{1, 2, 10, 20}},
		{"CrossEntropy", g.Const(0, s(2), s(2)).CrossEntropy(ids), []float32{float32(2 * math.Ln2)}},
		{"LinearCrossEntropy", g.Const(0, s(2), s(2)).LinearCrossEntropy(y, ids), []float32{float32(2 * math.Ln2)}},
		{"AdamW", p2, nil},
		{"AdamW m", m2, []float32{5, 6, 7, 8}},
		{"AdamW v", v2, []float32{25, 36, 49, 64}},
		{"Concat", graph.Concat(1, x, y), []float32{1, 2, 5, 6, 3, 4, 7, 8}},
	}
	var ts []graph.Tensor
	for _, c := range cases {
		ts = append(ts, c.t)
	}
	require.NoError(t, g.Err())
	got := eval(t, ts, map[string]*tensor.Tensor{
		"x": floats(t, []float32{1, 2, 3, 4}, 2, 2), "y": floats(t, []float32{5, 6, 7, 8}, 2, 2), "row": floats(t, []float32{10, 20}, 2),
		"ids": ints(1, 0), "lo": ints(0, 0), "hi": ints(1, 2), "offset": ints(1), "key": key(t), "zero": ints(0, 0),
	}, nil)
	for i, c := range cases {
		if c.want != nil {
			assert.InDeltaSlice(t, c.want, got[i], 1e-4, c.name)
		}
	}
}

func TestEvalWithBoundedDimensions(t *testing.T) {
	g := graph.New()
	n := g.Bound("rows", 8)
	x := g.Param("x", tensor.F32, n, ir.Static(2))
	out, err := graph.Eval(context.Background(), device(t), []graph.Tensor{x.Scale(2)},
		map[string]*tensor.Tensor{"x": floats(t, []float32{1, 2, 3, 4, 5, 6}, 3, 2)}, map[string]int{"rows": 3})
	require.NoError(t, err)
	assert.Equal(t, []int{3, 2}, out[0].Shape)
	got, err := out[0].Float32s()
	require.NoError(t, err)
	assert.Equal(t, []float32{2, 4, 6, 8, 10, 12}, got)
}

func TestEvalRefusals(t *testing.T) {
	g := graph.New()
	x := g.Param("weight", tensor.F32, g.Bound("rows", 4))
	y := []graph.Tensor{x.Scale(2)}
	dev, ctx := device(t), context.Background()
	four := floats(t, make([]float32, 4), 4)
	for want, run := range map[string]func() error{
		`param "weight" wants f32[v1]`: func() error { _, err := graph.Eval(ctx, dev, y, nil, nil); return err },
		`param "weight" wants f32`: func() error {
			_, err := graph.Eval(ctx, dev, y, map[string]*tensor.Tensor{"weight": four}, map[string]int{"rows": 3})
			return err
		},
		`there is no param "wieght"`: func() error {
			_, err := graph.Eval(ctx, dev, y, map[string]*tensor.Tensor{"weight": four, "wieght": four}, nil)
			return err
		},
		`no dimension "cols"`: func() error {
			_, err := graph.Eval(ctx, dev, y, map[string]*tensor.Tensor{"weight": four}, map[string]int{"cols": 3})
			return err
		},
		"rows = 5, expected 1 to 4": func() error {
			_, err := graph.Eval(ctx, dev, y, map[string]*tensor.Tensor{"weight": four}, map[string]int{"rows": 5})
			return err
		},
	} {
		err := run()
		require.ErrorIs(t, err, exec.ErrArgument, want)
		require.ErrorContains(t, err, want)
	}
	cancelled, cancel := context.WithCancel(ctx)
	cancel()
	_, err := graph.Eval(cancelled, dev, y, map[string]*tensor.Tensor{"weight": four}, nil)
	require.ErrorIs(t, err, context.Canceled)
	out, err := graph.Eval(ctx, dev, nil, nil, nil)
	require.NoError(t, err)
	require.Empty(t, out)
}

func TestErrorsNameTheCaller(t *testing.T) {
	g := graph.New()
	x := g.Param("x", tensor.F32, ir.Static(4))
	y := g.Param("y", tensor.F32, ir.Static(5))
	_, _, line, _ := runtime.Caller(0)
	bad := x.Add(y)
	require.False(t, bad.Valid())
	require.False(t, bad.Scale(2).Softmax().Valid(), "what follows gives nothing")
	_, err := g.Program().Result("r", bad).Plan(nil)
	require.ErrorIs(t, err, ir.ErrGraph)
	assert.Contains(t, err.Error(), fmt.Sprintf("graph_test.go:%d: graph: Binary[f32[4] f32[5]]: [4] and [5] do not fit each other at axis 0", line+1))
	_, err = g.Program().Result("r", x).Compile(device(t))
	require.ErrorIs(t, err, ir.ErrGraph, "a graph with a mistake compiles to nothing")
}

func TestOperandsOfAnotherGraph(t *testing.T) {
	for name, use := range map[string]func(g *graph.Graph, x, other graph.Tensor){
		"operand":  func(_ *graph.Graph, x, other graph.Tensor) { x.Add(other) },
		"weight":   func(_ *graph.Graph, x, other graph.Tensor) { x.LoRA(x, other, x, x, 1) },
		"list":     func(_ *graph.Graph, x, other graph.Tensor) { graph.Concat(0, x, other) },
		"result":   func(g *graph.Graph, _, other graph.Tensor) { g.Program().Result("r", other) },
		"update":   func(g *graph.Graph, _, other graph.Tensor) { g.Program().Update("x", other) },
		"loss":     func(g *graph.Graph, x, other graph.Tensor) { g.Gradients(other, []graph.Tensor{x}, false) },
		"gradient": func(g *graph.Graph, x, other graph.Tensor) { g.Gradients(x.SumSquares(), []graph.Tensor{other}, false) },
	} {
		g, h := graph.New(), graph.New()
		s := ir.Static(2)
		use(g, g.Param("x", tensor.F32, s, s), h.Param("y", tensor.F32, s, s))
		require.ErrorContains(t, g.Err(), "an operand belongs to another graph", name)
		assert.Contains(t, g.Err().Error(), "graph_test.go:", name)
		require.NoError(t, h.Err())
	}
}

func TestGradients(t *testing.T) {
	build := func(checkpoint bool) []graph.Tensor {
		g := graph.New()
		x := g.Param("x", tensor.F32, ir.Static(2))
		g.SetSegment(1)
		y := x.Apply(ir.Tanh).Mul(x)
		g.SetSegment(0)
		return append([]graph.Tensor{y}, g.Gradients(y.SumSquares(), []graph.Tensor{x}, checkpoint)...)
	}
	args := map[string]*tensor.Tensor{"x": floats(t, []float32{0.5, -1.5}, 2)}
	want := eval(t, build(false), args, nil)
	assert.Equal(t, want, eval(t, build(true), args, nil))
	for i, x := range []float64{0.5, -1.5} {
		th := math.Tanh(x)
		assert.InDelta(t, 2*th*x*(th+x*(1-th*th)), want[1][i], 1e-5)
	}
}

func TestTensor(t *testing.T) {
	g := graph.New()
	x := g.Param("x", tensor.BF16, ir.Static(3))
	assert.True(t, x.Valid())
	assert.False(t, graph.Tensor{}.Valid())
	assert.Equal(t, "bf16[3]", x.Type().String())
	assert.Same(t, g, x.Graph())
	assert.Equal(t, x, g.Of(x.Value()))
	assert.Equal(t, x, g.Param("x", tensor.BF16, ir.Static(3)), "a name is one param")
	g.Fail(assert.AnError)
	assert.ErrorIs(t, g.Err(), assert.AnError)
}
