package nn

import (
	"fmt"
	"slices"
	"strings"

	"github.com/lorafuse/lorafuse/graph"
	"github.com/lorafuse/lorafuse/internal/ir"
	"github.com/lorafuse/lorafuse/tensor"
)

// Experts configures a mixture of gated MLPs; a router chooses some of them for each row. The
// router's weight and the stacked matrices of the experts are modules of KindParameter.
type Experts struct {
	Router string // the weight [Count, in] that scores the experts
	// GateUp and Downs name the stacks [Count, 2·Units, in] and [Count, in, Units]. If a
	// checkpoint does not have them, Gate, Up and Down name the matrices of each expert, with
	// %d for its number.
	GateUp, Downs  string
	Gate, Up, Down string
	Count, Chosen  int // number of experts, and of experts chosen for a row
	Units          int // intermediate size of an expert
	Activation     ir.Activation
	// Normalized scales the shares of a row's chosen experts to sum to 1. Otherwise they are
	// the softmax over all experts.
	Normalized bool
	Layout
	// Clamp, if positive, replaces the activation by clampedGLU.
	Clamp, Gain float64 `json:",omitempty"`
	// Balanced includes the router in [Builder.Balance].
	Balanced bool
}

// Layout describes how a checkpoint stores the stacks of experts. The zero value is [Count, out, in],
// in which the rows of the gate precede those of up, without biases.
type Layout struct {
	Order ExpertsOrder `json:",omitempty"`
	// Interleaved reports that the rows of gate and up alternate.
	Interleaved bool `json:",omitempty"`
	// Biased reports that the router and each matrix have a bias, which is named as the stack with
	// "_bias" ("router.bias").
	Biased bool `json:",omitempty"`
}

// ExpertsOrder is the order of the axes of a stack of experts.
type ExpertsOrder uint8

// The orders.
const (
	OutIn   ExpertsOrder = iota // [Count, out, in]
	InOut                       // [Count, in, out]
	ByShape                     // [Count, in, out], unless the shape is [Count, out, in]
)

// Experts returns, for each row of x [n, in], the sum of the outputs of its chosen experts,
// weighted by the softmax of all scores.
func (b *Builder) Experts(e Experts, x graph.Tensor) graph.Tensor {
	if !x.Valid() {
		return x
	}
	n, in := x.Type().Shape[0], x.Type().Last()
	m := Module{Name: b.prefix + e.Router, Kind: KindParameter, In: in.N, Out: e.Count, Count: 1}
	m.Parts = []string{m.Name}
	b.modules = append(b.modules, m)
	var bias graph.Tensor
	if e.Biased {
		bias = b.Frozen(strings.TrimSuffix(m.Name, "weight")+"bias", e.Count)
	}
	scores := b.linear(m, x, b.Frozen(m.Name, e.Count, in.N), bias)
	if !scores.Valid() {
		return scores
	}
	all := scores.Softmax()
	shares, chosen := all.TopK(e.Chosen)
	if e.Normalized {
		shares = shares.Div(shares.Sum(1).Reshape(n, ir.Static(1)))
	}
	k := ir.Static(e.Chosen)
	rows := ir.Dim{N: n.N * e.Chosen, Var: n.Var} // one for each expert of a row
	index := chosen.Reshape(rows)
	if e.Balanced {
		b.routings = append(b.routings, routing{rows: n, chosen: b.histogram(index, e.Count), shares: all.Sum(0)})
	}
	x = x.Reshape(n, ir.Static(1), in)
	x = b.G.Of(b.G.IR().Broadcast(x.Value(), ir.Shape{n, k, in})).Reshape(rows, in)
	each := b.RepeatInterleave(e.Chosen)
	both := each.stack(e, e.GateUp, e.Units, x, index, e.Gate, e.Up)
	var h graph.Tensor
	if e.Clamp > 0 {
		h = e.clampedGLU(both[0], both[1])
	} else {
		h = both[0].GLU(both[1], e.Activation)
	}
	y := each.stack(e, e.Downs, in.N, h, index, e.Down)[0]
	return y.Reshape(n, k, in).Mul(shares.Reshape(n, k, ir.Static(1))).Sum(1)
}

// stack multiplies the rows of x with the matrices of the named parameter that index selects.
// It returns a result of out columns for each of names, which name the matrices of an expert
// if the checkpoint stores them separately.
func (b *Builder) stack(e Experts, name string, out int, x, index graph.Tensor, names ...string) []graph.Tensor {
	ys := make([]graph.Tensor, len(names))
	if !x.Valid() {
		for i := range ys {
			ys[i] = x
		}
		return ys
	}
	m := Module{Name: b.prefix + name, Kind: KindParameter, In: x.Type().Last().N, Out: out * len(names), Count: e.Count}
	whole := e.Gate == "" || b.Has(m.Name)
	if whole {
		m.Parts = []string{m.Name}
		var table graph.RowsWeights
		table, m.Transposed = b.stacked(e, m)
		ys = []graph.Tensor{x.RowsGemm(index, table, graph.Tensor{})}
	} else {
		tables := make([]graph.RowsWeights, len(names))
		for i := range e.Count {
			for j, format := range names {
				stored := b.prefix + fmt.Sprintf(format, i)
				m.Parts = append(m.Parts, stored)
				tables[j].Matrices = append(tables[j].Matrices, b.expert(stored, out, m.In))
			}
		}
		for j, t := range tables {
			t.Out = out
			ys[j] = x.RowsGemm(index, t, graph.Tensor{})
		}
	}
	b.modules = append(b.modules, m)
	if b.adapter != nil {
		ys = b.adapter.Stack(b, m, x, index, ys...)
	}
	if whole && len(names) > 1 {
		y := ys[0]
		if e.Interleaved && y.Valid() {
			rows, units := y.Type().Shape[0], ir.Static(out)
			pairs := y.Reshape(rows, units, ir.Static(2))
			return []graph.Tensor{pairs.Slice(2, 0, 1).Reshape(rows, units), pairs.Slice(2, 1, 2).Reshape(rows, units)}
		}
		ys = make([]graph.Tensor, len(names))
		for j := range names {
			ys[j] = y.Slice(1, j*out, (j+1)*out)
		}
	}
	return ys
}

// stacked returns the stack of m, and whether the checkpoint stores its matrices transposed.
func (b *Builder) stacked(e Experts, m Module) (table graph.RowsWeights, transposed bool) {
	name := m.Name
	transposed = e.Order == InOut
	if e.Order == ByShape {
		shape := []int{m.Count, m.Out, m.In}
		w, err := b.weight(name, shape)
		transposed = err == nil && !slices.Equal(w.Shape, shape)
	}
	if transposed {
		name += TransposedSuffix
	}
	table = graph.RowsWeights{Matrices: []graph.Tensor{b.expert(name, m.Count, m.Out, m.In)}, Stacked: true}
	if e.Biased {
		table.Bias = b.Frozen(m.Name+"_bias", m.Count, m.Out).Cast(tensor.F32)
	}
	return table, transposed
}

// clampedGLU returns (up + 1)·gate·sigmoid(Gain·gate), with gate at most Clamp, and up between
// −Clamp and Clamp.
func (e Experts) clampedGLU(gate, up graph.Tensor) graph.Tensor {
	if !gate.Valid() || !up.Valid() {
		return gate
	}
	g := gate.Graph()
	limit := g.Const(e.Clamp)
	gate = gate.Min(limit)
	up = g.Of(g.IR().Binary(ir.Max, up.Min(limit).Value(), g.Const(-e.Clamp).Value()))
	return up.AddScalar(1).Mul(gate.Mul(gate.Scale(e.Gain).Apply(ir.Sigmoid)))
}

// expert returns a weight of the experts.
func (b *Builder) expert(name string, shape ...int) graph.Tensor {
	m := b.Frozen(name, shape...)
	if m.Valid() && m.Type().DType.Quantized() && !m.Type().DType.Foreign() {
		return b.G.Fail(fmt.Errorf("tensor %q of an expert is quantised to %v; supported: F32, F16, BF16", name, m.Type().DType))
	}
	return m
}

// routing counts the decisions of a router over its rows: how many rows choose each expert,
// and the sum of each expert's shares.
type routing struct {
	rows           ir.Dim
	chosen, shares graph.Tensor // f32 [Count]
}

// histogram counts how often index i32 [n] contains each number below count.
func (b *Builder) histogram(index graph.Tensor, count int) graph.Tensor {
	ones := b.G.Const(1, index.Type().Shape[0], ir.Static(1))
	sums := b.G.Of(b.G.IR().ScatterAddRows(ones.Value(), index.Value(), ir.Static(count)))
	return sums.Reshape(ir.Static(count))
}

// Balance returns the load-balancing loss of experts (Fedus et al. 2021, arXiv 2101.03961)
// over the rows of all Balanced routers taken together. The loss is the number of experts
// times the sum, over experts, of the fraction of rows that choose an expert times its mean
// share. It is invalid if there is no such router.
func (b *Builder) Balance() graph.Tensor {
	var chosen, shares, rows graph.Tensor
	for i, r := range b.routings {
		n := b.G.Const(1, r.rows).Sum(0)
		if i == 0 {
			chosen, shares, rows = r.chosen, r.shares, n
			continue
		}
		chosen, shares, rows = chosen.Add(r.chosen), shares.Add(r.shares), rows.Add(n)
	}
	if !chosen.Valid() {
		return chosen
	}
	count := chosen.Type().Last().N
	return chosen.Div(rows).Mul(shares.Div(rows)).Sum(0).Scale(float64(count))
}
