package kernels

import (
	"context"
	"fmt"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/dev/bench"
	"github.com/lorafuse/lorafuse/dev/bench/program"
	"github.com/lorafuse/lorafuse/graph"
	"github.com/lorafuse/lorafuse/ir"
	"github.com/lorafuse/lorafuse/tensor"
)

// The heads of the attention that is measured.
const (
	queryHeads = 8
	keyHeads   = 4
	headDim    = 64
)

// attention is a causal one over some texts of so many tokens, each behind a cache of
// others.
type attention struct {
	texts, length, cached int
	back                  bool
	precision             backend.Precision
}

// attentions lists those of a batch of rows, of one long text, and of one token
// behind a cache, which no precision is asked for.
func (s *suite) attentions() (tasks []bench.Task) {
	for _, length := range []int{256, 4096} {
		for _, back := range []bool{false, true} {
			for _, p := range []backend.Precision{backend.F32, backend.BF16} {
				a := attention{texts: max(1, 1024/length), length: s.shrunk(length, 1), back: back, precision: p}
				tasks = append(tasks, s.attention(a))
				if s.torch != nil {
					tasks = append(tasks, s.theirAttention(a))
				}
			}
		}
	}
	return append(tasks, s.attention(attention{texts: 1, length: 1, cached: s.shrunk(4095, 1)}))
}

// row names an attention, and says what it costs.
func (a *attention) row(program string) *bench.Row {
	queries := a.texts * a.length
	name, input := fmt.Sprintf("forward, %v", a.precision), fmt.Sprintf("%d × %d tokens, %d heads of %d", a.texts, a.length, queryHeads, headDim)
	switch {
	case a.cached > 0:
		name, input = "one token", fmt.Sprintf("behind %d, %d heads of %d", a.cached, queryHeads, headDim)
	case a.back:
		name = fmt.Sprintf("backward, %v", a.precision)
	}
	op, pairs := ir.Attention, a.texts*(a.length*(a.length+1)/2+a.length*a.cached)
	moved := 2*queries*queryHeads*headDim + 2*(queries+a.cached)*keyHeads*headDim // q, o, k, v
	if a.back {
		op, moved = ir.AttentionGrad, 2*moved // their gradients, too
	}
	return &bench.Row{Group: "Attention", Program: program, Name: name, Input: input, Flops: float64(ir.AttentionFlops(op, a.attr(), pairs)), Bytes: 4 * int64(moved)}
}

func (a *attention) attr() ir.AttentionAttr {
	return ir.AttentionAttr{Heads: queryHeads, KVHeads: keyHeads, HeadDim: headDim, Scale: 0.125}
}

// attention is one of ours.
func (s *suite) attention(a attention) bench.Task {
	return s.machine.Task(a.row(ours), a.precision, func() program.Spec {
		queries := a.texts * a.length
		keys := queries + a.cached
		p := &pass{g: graph.New()}
		over := func(name string, rows, heads int) graph.Tensor { return p.param(name, tensor.F32, rows, heads*headDim) }
		q, k, v := over("q", queries, queryHeads), over("k", keys, keyHeads), over("v", keys, keyHeads)
		lo := p.words("lo", queries, func(i int) int32 { return int32(i / a.length * a.length) })
		hi := p.words("hi", queries, func(i int) int32 { return int32(a.cached + i + 1) })
		if !a.back {
			p.result(q.Attention(k, v, lo, hi, a.attr()))
			return p.spec
		}
		// The gradient alone: o and lse are what they may be.
		d := p.g.IR().Apply(ir.AttentionGrad, a.attr(), over("do", queries, queryHeads).Value(), q.Value(), k.Value(), v.Value(),
			over("o", queries, queryHeads).Value(), p.param("lse", tensor.F32, queries, queryHeads).Value(), lo.Value(), hi.Value())
		p.result(p.g.Of(d), p.g.Of(p.g.IR().Out(d, 1)), p.g.Of(p.g.IR().Out(d, 2)))
		return p.spec
	})
}

// theirAttention is the same by torch, whose keys and values have been repeated for
// the heads that share them.
func (s *suite) theirAttention(a attention) bench.Task {
	row := a.row(torch)
	row.Bytes = 0 // of types of its own
	return bench.Task{Row: row, Foreign: true, Begin: func(ctx context.Context) (bench.Sampler, error) {
		return s.torch.Begin(ctx, map[string]any{"op": "attention", "texts": a.texts, "heads": queryHeads, "length": a.length, "dim": headDim,
			"back": a.back, "dtype": fmt.Sprint(a.precision)})
	}}
}
