package kernels

import (
	"context"
	"fmt"
	"math"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/dev/bench"
	"github.com/lorafuse/lorafuse/dev/bench/program"
	"github.com/lorafuse/lorafuse/graph"
	"github.com/lorafuse/lorafuse/internal/ir"
	"github.com/lorafuse/lorafuse/tensor"
)

// heads holds the head counts and the head size of an attention.
type heads struct{ queries, keys, dim int }

// few are the heads of a small model.
var few = heads{queries: 8, keys: 4, dim: 64}

// attention is causal attention over several sequences of equal length, each after a cached prefix.
type attention struct {
	heads
	texts, length, cached int
	page                  int  // rows of a page of keys and values; zero if they are consecutive
	whole                 bool // not causal: tokens also attend to later ones
	back                  bool
	precision             backend.Precision
}

// attentions returns tasks for a batch of rows, for one long sequence, and for one token after a cache, without a
// precision.
func (s *suite) attentions() (tasks []bench.Task) {
	for _, length := range []int{256, 4096} {
		for _, back := range []bool{false, true} {
			for _, p := range []backend.Precision{backend.F32, backend.BF16} {
				a := attention{heads: few, texts: max(1, 1024/length), length: s.shrunk(length, 1), back: back, precision: p}
				tasks = append(tasks, s.attention(a))
				if s.torch != nil {
					tasks = append(tasks, s.theirAttention(a))
				}
			}
		}
	}
	return append(tasks, s.attention(attention{heads: few, texts: 1, length: 1, cached: s.shrunk(4095, 1)}))
}

// row returns a row with the name and the cost of an attention.
func (a *attention) row(program string) *bench.Row {
	queries := a.texts * a.length
	name, input := fmt.Sprintf("forward, %v", a.precision), fmt.Sprintf("%d × %d tokens, %d heads of %d", a.texts, a.length, a.queries, a.dim)
	switch {
	case a.page > 0:
		name, input = fmt.Sprintf("%d tokens of a prompt, in pages", a.length), fmt.Sprintf("behind %d, %d heads of %d", a.cached, a.queries, a.dim)
	case a.cached > 0:
		name, input = "one token", fmt.Sprintf("behind %d, %d heads of %d", a.cached, a.queries, a.dim)
	case a.back:
		name = fmt.Sprintf("backward, %v", a.precision)
	}
	op, pairs := ir.Attention, a.texts*(a.length*(a.length+1)/2+a.length*a.cached)
	if a.whole {
		pairs, input = a.texts*a.length*a.length, input+", no mask"
	}
	moved := 2*queries*a.queries*a.dim + 2*(queries+a.cached)*a.keys*a.dim // q, o, k, v
	if a.back {
		op, moved = ir.AttentionGrad, 2*moved // their gradients, too
	}
	return &bench.Row{Group: "Attention", Program: program, Name: name, Input: input, Flops: float64(ir.AttentionFlops(op, a.attr(), pairs)), Bytes: 4 * int64(moved)}
}

func (a *attention) attr() ir.AttentionAttr {
	return ir.AttentionAttr{Heads: a.queries, KVHeads: a.keys, HeadDim: a.dim, Scale: float32(1 / math.Sqrt(float64(a.dim))), Page: a.page}
}

// attention returns the task of an attention with lorafuse.
func (s *suite) attention(a attention) bench.Task {
	row := a.row(ours)
	return s.machine.Task(row, a.precision, func() program.Spec {
		spec := program.Spec{Graph: graph.New(), Words: map[string][]int32{}, Copies: s.machine.Copies(row.Bytes)}
		for i := range spec.Copies {
			spec.Results = append(spec.Results, a.results(&spec, fmt.Sprint(".", i))...)
		}
		return spec
	})
}

// results adds an attention to a program, whose params have the suffix, and returns its results.
func (a *attention) results(spec *program.Spec, suffix string) []graph.Tensor {
	g, queries := spec.Graph, a.texts*a.length
	keys := queries + a.cached
	over := func(name string, rows, heads int) graph.Tensor {
		return g.Param(name+suffix, tensor.F32, ir.ShapeOf(rows, heads*a.dim)...)
	}
	bounds := func(name string, of func(i int) int) graph.Tensor {
		words := make([]int32, queries)
		for i := range words {
			words[i] = int32(of(i))
		}
		spec.Words[name+suffix] = words
		return g.Param(name+suffix, tensor.I32, ir.ShapeOf(queries)...)
	}
	q, k, v := over("q", queries, a.queries), over("k", keys, a.keys), over("v", keys, a.keys)
	lo := bounds("lo", func(i int) int { return i / a.length * a.length })
	hi := bounds("hi", func(i int) int {
		if a.whole {
			return (i/a.length + 1) * a.length
		}
		return a.cached + i + 1
	})
	if a.page > 0 {
		words := make([]int32, keys/a.page)
		for i := range words {
			words[i] = int32(len(words) - 1 - i)
		}
		spec.Words["pages"+suffix] = words
		return []graph.Tensor{q.Attention(k, v, lo, hi, a.attr(), g.Param("pages"+suffix, tensor.I32, ir.ShapeOf(len(words))...))}
	}
	if !a.back {
		return []graph.Tensor{q.Attention(k, v, lo, hi, a.attr())}
	}
	// Only the gradient is measured: the values of o and lse do not matter.
	lse := g.Param("lse"+suffix, tensor.F32, ir.ShapeOf(queries, a.queries)...)
	d := g.IR().Apply(ir.AttentionGrad, a.attr(), over("do", queries, a.queries).Value(), q.Value(), k.Value(), v.Value(),
		over("o", queries, a.queries).Value(), lse.Value(), lo.Value(), hi.Value())
	return []graph.Tensor{g.Of(d), g.Of(g.IR().Out(d, 1)), g.Of(g.IR().Out(d, 2))}
}

// theirAttention returns the same attention with torch, with keys and values repeated for grouped heads.
func (s *suite) theirAttention(a attention) bench.Task {
	row := a.row(torch)
	row.Bytes = 0 // of types of its own
	return bench.Task{Row: row, Foreign: true, Begin: func(ctx context.Context) (bench.Sampler, error) {
		return s.torch.Begin(ctx, map[string]any{"op": "attention", "texts": a.texts, "heads": a.queries, "length": a.length, "dim": a.dim,
			"back": a.back, "dtype": fmt.Sprint(a.precision)})
	}}
}
