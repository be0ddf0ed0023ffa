package nn

import (
	"fmt"

	"github.com/lorafuse/lorafuse/graph"
	"github.com/lorafuse/lorafuse/ir"
)

// Experts are gated MLPs of which a router chooses some for each row. Their weights
// have no module each that an adapter could target: none takes part in them.
type Experts struct {
	Router string // the weight [Count, in] that scores the experts
	// Gate, Up and Down name the weights of an expert, with %d for its number.
	Gate, Up, Down string
	Count, Chosen  int // experts in all, and for a row
	Units          int // inner ones of an expert
	Activation     ir.Activation
	// Normalized has the shares of the chosen experts of a row add up to 1; else they
	// are what they are among all.
	Normalized bool
}

// Experts is the sum over the experts that are chosen for a row of x [n, in], each
// times its share: the softmax of all scores.
func (b *Builder) Experts(e Experts, x graph.Tensor) graph.Tensor {
	if !x.Valid() {
		return x
	}
	n, in := x.Type().Shape[0], x.Type().Last()
	shares := x.Linear(b.Frozen(b.prefix+e.Router, e.Count, in.N), graph.Tensor{}).Softmax()
	if !shares.Valid() {
		return shares
	}
	shares, chosen := shares.TopK(e.Chosen)
	if e.Normalized {
		shares = shares.Div(shares.Sum(1).Reshape(n, ir.Static(1)))
	}
	k := ir.Static(e.Chosen)
	rows := ir.Dim{N: n.N * e.Chosen, Var: n.Var} // one for each expert of a row
	index := chosen.Reshape(rows)
	x = x.Reshape(n, ir.Static(1), in)
	x = b.G.Of(b.G.IR().Broadcast(x.Value(), ir.Shape{n, k, in})).Reshape(rows, in)
	up := x.RowsGemm(index, b.tables(e.Up, e.Count, e.Units, in.N), graph.Tensor{})
	h := x.RowsGemm(index, b.tables(e.Gate, e.Count, e.Units, in.N), graph.Tensor{}).GLU(up, e.Activation)
	y := h.RowsGemm(index, b.tables(e.Down, e.Count, in.N, e.Units), graph.Tensor{})
	return y.Reshape(n, k, in).Mul(shares.Reshape(n, k, ir.Static(1))).Sum(1)
}

// tables are the weights [out, in] of all experts that name names.
func (b *Builder) tables(name string, count, out, in int) graph.RowsWeights {
	w := graph.RowsWeights{Out: out}
	for i := range count {
		stored := b.prefix + fmt.Sprintf(name, i)
		m := b.Frozen(stored, out, in)
		if m.Valid() && m.Type().DType.Quantized() {
			m = b.G.Fail(fmt.Errorf("tensor %q of an expert is quantised to %v; supported: F32, F16, BF16", stored, m.Type().DType))
		}
		w.Matrices = append(w.Matrices, m)
	}
	return w
}
