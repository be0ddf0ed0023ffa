//go:build cuda && linux

package cuda_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/backend/cuda"
	"github.com/lorafuse/lorafuse/graph"
	"github.com/lorafuse/lorafuse/ir"
	"github.com/lorafuse/lorafuse/tensor"
)

// TestHead takes the rows of a batch in several stretches, and divides the
// products of gradients into parts.
func TestHead(t *testing.T) {
	dev := opened(t, backend.Options{})
	defer cuda.SmallStretches()()
	for _, d := range []tensor.DType{tensor.F32, tensor.BF16, tensor.F16, tensor.Q8, tensor.NF4, tensor.FP4} {
		v := newValues(3)
		x, w, labels, dloss := v.floats(tensor.F32, 1, 200, 24), v.floats(d, 0.3, 1120, 24), v.labels(200, 1120), v.g.Const(0.25)
		grad := v.g.IR().Apply(ir.LinearCrossEntropyGrad, nil, x.Value(), w.Value(), labels.Value(), dloss.Value())
		v.check(t, dev, 1e-5, v.g.Of(grad), v.g.Of(v.g.IR().Out(grad, 1)), v.g.Of(v.g.IR().LinearCrossEntropy(x.Value(), w.Value(), labels.Value())))
	}
}

// TestLabels: those that the vocabulary does not have are named.
func TestLabels(t *testing.T) {
	dev := opened(t, backend.Options{})
	for op, build := range map[string]func(g *ir.Graph, x, w, y, s ir.Value) ir.Value{
		"CrossEntropy":       func(g *ir.Graph, x, _, y, _ ir.Value) ir.Value { return g.CrossEntropy(x, y) },
		"CrossEntropyGrad":   func(g *ir.Graph, x, _, y, s ir.Value) ir.Value { return g.Apply(ir.CrossEntropyGrad, nil, x, y, s) },
		"LinearCrossEntropy": func(g *ir.Graph, x, w, y, _ ir.Value) ir.Value { return g.LinearCrossEntropy(x, w, y) },
		"LinearCrossEntropyGrad": func(g *ir.Graph, x, w, y, s ir.Value) ir.Value {
			return g.Apply(ir.LinearCrossEntropyGrad, nil, x, w, y, s)
		},
	} {
		v := newValues(1)
		x, w, y := v.floats(tensor.F32, 1, 4, 5), v.floats(tensor.F32, 1, 5, 5), v.words(tensor.I32, 4, -1, 5, 9)
		out := v.g.Of(build(v.g.IR(), x.Value(), w.Value(), y.Value(), v.g.Const(1).Value()))
		_, err := graph.Eval(context.Background(), dev, []graph.Tensor{out}, v.args, nil)
		require.EqualError(t, err, "cuda: "+op+": label 5 at 2, the vocabulary has 5")
	}
	require.NoError(t, twice(dev), "the device lives on")
}
