package conformance

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/graph"
	"github.com/lorafuse/lorafuse/internal/ir"
	"github.com/lorafuse/lorafuse/tensor"
)

// refusal is a graph that must fail with the given numbers of rows or classes.
type refusal struct {
	want  string // the error
	with  string // a part of the error, if each device words it differently
	ids   [2]int32
	build func(g *graph.Graph, ids graph.Tensor) graph.Tensor
}

func refusals() []refusal {
	table := func(g *graph.Graph, rows, cols int) graph.Tensor { return g.Const(1, ir.Static(rows), ir.Static(cols)) }
	gather := func(g *graph.Graph, ids graph.Tensor) graph.Tensor { return table(g, 4, 2).Gather(ids) }
	update := func(g *graph.Graph, ids graph.Tensor) graph.Tensor {
		return table(g, 4, 2).UpdateRows(table(g, 2, 2), ids.Slice(0, 0, 1))
	}
	apply := func(op ir.Op, rest ...int) func(g *graph.Graph, ids graph.Tensor) graph.Tensor {
		return func(g *graph.Graph, ids graph.Tensor) graph.Tensor {
			in := []ir.Value{table(g, 2, 5).Value()}
			for _, rows := range rest {
				in = append(in, table(g, rows, 5).Value())
			}
			in = append(in, ids.Value())
			if op == ir.CrossEntropyGrad || op == ir.LinearCrossEntropyGrad {
				in = append(in, g.Const(1).Value())
			}
			return g.Of(g.IR().Apply(op, nil, in...))
		}
	}
	inPages := func(g *graph.Graph, ids graph.Tensor) graph.Tensor { // with three pages
		q, k, none := table(g, 2, 4), table(g, 6, 4), ids.Sub(ids)
		return q.Attention(k, k, none, none, ir.AttentionAttr{Heads: 1, KVHeads: 1, HeadDim: 4, Scale: 1, Page: 2}, ids)
	}
	return []refusal{
		{"GatherRows: id 7 at 1, the table has 4 rows", "", [2]int32{0, 7}, gather},
		{"GatherRows: id -1 at 0, the table has 4 rows", "", [2]int32{-1, 9}, gather},
		{"ScatterAddRows: id 3 at 0, the table has 3 rows", "", [2]int32{3, 0}, func(g *graph.Graph, ids graph.Tensor) graph.Tensor {
			return g.Of(g.IR().ScatterAddRows(table(g, 2, 2).Value(), ids.Value(), ir.Static(3)))
		}},
		{"UpdateRows: 2 rows at 3 do not fit a table of 4", "", [2]int32{3, 0}, update},
		{"UpdateRows: 2 rows at -1 do not fit a table of 4", "", [2]int32{-1, 0}, update},
		{"ScatterRows: index 6 at 1, the table has 4 rows", "", [2]int32{-1, 6}, func(g *graph.Graph, ids graph.Tensor) graph.Tensor {
			return table(g, 4, 2).ScatterRows(table(g, 2, 2), ids)
		}},
		{"ScatterRows: index 5 at 0, the table has 4 rows", "", [2]int32{5, 6}, func(g *graph.Graph, ids graph.Tensor) graph.Tensor {
			return table(g, 4, 2).ScatterRows(table(g, 2, 2), ids)
		}},
		{"", "7 at 1, ", [2]int32{-1, 7}, func(g *graph.Graph, ids graph.Tensor) graph.Tensor {
			return table(g, 2, 3).RowsGemm(ids, graph.RowsWeights{Matrices: []graph.Tensor{table(g, 4, 3), table(g, 2, 3)}}, graph.Tensor{})
		}},
		{"CrossEntropy: label 5 at 1, the vocabulary has 5", "", [2]int32{-1, 5}, apply(ir.CrossEntropy)},
		{"CrossEntropyGrad: label 6 at 0, the vocabulary has 5", "", [2]int32{6, 0}, apply(ir.CrossEntropyGrad)},
		{"LinearCrossEntropy: label 7 at 0, the vocabulary has 7", "", [2]int32{7, 0}, apply(ir.LinearCrossEntropy, 7)},
		{"LinearCrossEntropyGrad: label 7 at 1, the vocabulary has 7", "", [2]int32{0, 7}, apply(ir.LinearCrossEntropyGrad, 7)},
		{"Attention: ", "query 1 ", [2]int32{1, 3}, func(g *graph.Graph, ids graph.Tensor) graph.Tensor {
			q := table(g, 2, 4)
			return q.Attention(q, q, ids.Sub(ids), ids, ir.AttentionAttr{Heads: 1, KVHeads: 1, HeadDim: 4, Scale: 1})
		}},
		{"", " 3 at 1, ", [2]int32{2, 3}, inPages},
		{"", " -1 at 0, ", [2]int32{-1, 0}, inPages},
	}
}

// runContents checks that invalid contents, which the rules of a graph cannot detect, fail at run time with their
// position. Nothing outside a value is read or written, and the device remains usable.
func runContents(t *testing.T, dev backend.Device) {
	for _, c := range refusals() {
		g := graph.New()
		y := c.build(g, g.Param("ids", tensor.I32, ir.Static(2)))
		data := binary.LittleEndian.AppendUint32(nil, uint32(c.ids[0]))
		data = binary.LittleEndian.AppendUint32(data, uint32(c.ids[1]))
		_, err := graph.Eval(context.Background(), dev, []graph.Tensor{y}, map[string]*tensor.Tensor{"ids": {DType: tensor.I32, Shape: []int{2}, Data: data}}, nil)
		require.Error(t, err)
		want := dev.Info().Backend + ": " + c.want
		if c.with == "" {
			require.EqualError(t, err, want)
		} else {
			require.Contains(t, err.Error(), c.with)
			require.True(t, strings.HasPrefix(err.Error(), want), "%v", err)
		}
		require.NotErrorIs(t, err, backend.ErrLost)
	}
	_, err := graph.Eval(context.Background(), dev, []graph.Tensor{graph.New().Const(1).Scale(2)}, nil, nil)
	require.NoError(t, err)
}

// runEmpty runs operations on values without elements.
func runEmpty(t *testing.T, dev backend.Device) {
	g := graph.New()
	s := ir.Static
	x := g.Param("x", tensor.F32, s(0), s(4))
	w := g.Param("w", tensor.F32, s(3), s(4))
	narrow := g.Param("narrow", tensor.F32, s(3), s(0))
	outs := []graph.Tensor{
		x.Apply(ir.Exp), x.Add(x), x.Mul(w.Slice(0, 0, 1)), x.Scale(2), x.Sum(0), x.Transpose(1, 0), x.Linear(w, graph.Tensor{}),
		narrow.MatMulT(narrow), narrow.Sum(1), graph.Concat(0, x, w), w.Slice(0, 1, 1), x.Softmax(), x.SumSquares(),
		x.RMSNorm(g.Const(1, s(4)), 1), x.GLU(x, ir.SiLU), narrow.Transpose(1, 0).MatMul(w),
	}
	twelve, err := tensor.FromFloat32s(make([]float32, 12), 3, 4)
	require.NoError(t, err)
	got := evalFloats(t, dev, outs, map[string]*tensor.Tensor{
		"x": {DType: tensor.F32, Shape: []int{0, 4}}, "w": &twelve, "narrow": {DType: tensor.F32, Shape: []int{3, 0}},
	})
	for i, n := range map[int]int{4: 4, 7: 9, 8: 3, 12: 1} {
		assert.Equal(t, make([]float32, n), got[i], "a sum of nothing")
	}
}

// runFinite checks that NaN propagates as in PyTorch and that infinite sums are infinite, along rows and columns, short
// and long.
func runFinite(t *testing.T, dev backend.Device) {
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	for _, inner := range []int{1, 3} {
		for _, n := range []int{4, 700} {
			g := graph.New()
			x := g.Param("x", tensor.F32, ir.Static(3), ir.Static(n), ir.Static(inner))
			in := make([]float32, 3*n*inner)
			for i := range in {
				in[i] = float32(i % 5)
			}
			// These are the last of the first n elements and the second of the others.
			places := []int{n*inner - inner, n*inner + inner, 2*n*inner + inner}
			for i, v := range []float32{nan, inf, -inf} {
				in[places[i]] = v
			}
			host, err := tensor.FromFloat32s(in, 3, n, inner)
			require.NoError(t, err)
			most := float32(0) // maximum of the other elements of the last n
			for i := 2 * n * inner; i < len(in); i += inner {
				most = max(most, in[i])
			}
			outs := []graph.Tensor{x.Sum(1), g.Of(g.IR().Reduce(ir.ReduceMax, x.Value(), 1)), x.Min(g.Const(2)), x.Apply(ir.IsFinite), x.SumSquares()}
			if inner == 1 {
				outs = append(outs, x.Reshape(ir.Static(3), ir.Static(n)).Softmax())
			}
			got := evalFloats(t, dev, outs, map[string]*tensor.Tensor{"x": &host})
			for i, want := range [][3]float32{{nan, inf, -inf}, {nan, inf, most}} {
				for j, w := range want {
					requireSame(t, w, got[i][j*inner], "%d of %d by %d", i, n, inner)
				}
			}
			for i, want := range [][3]float32{{nan, 2, -inf}, {0, 0, 0}} {
				for j, w := range want {
					requireSame(t, w, got[2+i][places[j]], "%v of %d by %d", outs[2+i], n, inner)
				}
			}
			requireSame(t, nan, got[4][0], "the sum of all squares")
			if inner == 1 {
				for i, v := range got[5][:2*n] {
					requireSame(t, nan, v, "softmax %d of NaN, and of infinity", i)
				}
				requireSame(t, 0, got[5][places[2]], "softmax of minus infinity")
			}
		}
	}
}

// runApart checks that rows of a RowsGemm are independent. NaN in one row or matrix does not reach the results of other
// rows, nor the gradients of other matrices, also if the device decomposes the operation.
func runApart(t *testing.T, dev backend.Device) {
	nan := float32(math.NaN())
	for _, dev := range []backend.Device{dev, primitive{dev}} {
		g, s := graph.New(), ir.Static
		x, index := g.Param("x", tensor.F32, s(4), s(2)), g.Param("index", tensor.I32, s(4))
		good, bad := g.Param("good", tensor.F32, s(3), s(2)), g.Param("bad", tensor.F32, s(3), s(2))
		y := x.RowsGemm(index, graph.RowsWeights{Matrices: []graph.Tensor{good, bad}}, graph.Tensor{})
		d := g.Gradients(y.Sum(1).Sum(0), []graph.Tensor{x, good}, false)
		args := map[string]*tensor.Tensor{"index": {DType: tensor.I32, Shape: []int{4}, Data: []byte{0, 0, 0, 0, 1, 0, 0, 0, 255, 255, 255, 255, 0, 0, 0, 0}}}
		for name, values := range map[string][]float32{"x": {1, 2, nan, 3, nan, nan, 3, 4}, "good": {1, 0, 0, 1, 1, 1}, "bad": {nan, nan, nan, nan, nan, nan}} {
			host, err := tensor.FromFloat32s(values, len(values)/2, 2)
			require.NoError(t, err)
			args[name] = &host
		}
		got := evalFloats(t, dev, []graph.Tensor{y, d[0], d[1]}, args)
		for i, want := range []float32{1, 2, 3, nan, nan, nan, 0, 0, 0, 3, 4, 7} {
			requireSame(t, want, got[0][i], "element %d", i)
		}
		for i, want := range []float32{2, 2, nan, nan, 0, 0, 2, 2} {
			requireSame(t, want, got[1][i], "element %d of the gradient of x", i)
		}
		require.Equal(t, []float32{4, 6, 4, 6, 4, 6}, got[2], "the gradient of the matrix without NaN")
	}
}

func evalFloats(t *testing.T, dev backend.Device, outs []graph.Tensor, args map[string]*tensor.Tensor) (all [][]float32) {
	t.Helper()
	out, err := graph.Eval(context.Background(), dev, outs, args, nil)
	require.NoError(t, err)
	for _, o := range out {
		x, err := o.Float32s()
		require.NoError(t, err)
		all = append(all, x)
	}
	return all
}

// requireSame requires equal values and treats all NaNs as equal.
func requireSame(t *testing.T, want, got float32, format string, args ...any) {
	t.Helper()
	if want != want {
		require.True(t, got != got, "%s is %v, expected NaN", fmt.Sprintf(format, args...), got)
		return
	}
	require.Equal(t, want, got, fmt.Sprintf(format, args...))
}
