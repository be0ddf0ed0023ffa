package conformance

import (
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/lorafuse/lorafuse/internal/ir"
	"github.com/lorafuse/lorafuse/tensor"
)

// attentionLimit allows for the order of the sums over keys.
const attentionLimit = 5e-6

// interval returns the keys [lo, hi) that query i sees.
type interval func(i int) (lo, hi int)

func causal(i int) (lo, hi int) { return 0, i + 1 }

// all returns an interval of the same m keys for every query.
func all(m int) interval { return func(int) (lo, hi int) { return 0, m } }

// after returns a causal interval for queries that follow past keys of a cache.
func after(past int) interval { return func(i int) (lo, hi int) { return 0, past + i + 1 } }

// packed returns a causal interval within documents that start at starts.
func packed(starts ...int) interval {
	return func(i int) (lo, hi int) {
		for _, s := range starts {
			if s <= i {
				lo = s
			}
		}
		return lo, i + 1
	}
}

// near returns an interval of the keys less than window tokens away on both sides, within documents that start at
// starts. The last of starts is the end.
func near(window int, starts ...int) interval {
	return func(i int) (lo, hi int) {
		for _, s := range starts {
			if hi = s; s > i {
				break
			}
			lo = s
		}
		return max(lo, i-window+1), min(hi, i+window)
	}
}

// between returns intervals with the given ends: lo, hi, lo, hi, …
func between(ends ...int) interval { return func(i int) (lo, hi int) { return ends[2*i], ends[2*i+1] } }

// holes returns f without keys for every third query.
func holes(f interval) interval {
	return func(i int) (lo, hi int) {
		if i%3 == 1 {
			return 0, 0
		}
		return f(i)
	}
}

func (f interval) fill(high bool) fill {
	return func(_ *rand.Rand, shape []int) []float64 {
		x := make([]float64, size(shape))
		for i := range x {
			lo, hi := f(i)
			x[i] = float64(lo)
			if high {
				x[i] = float64(hi)
			}
		}
		return x
	}
}

// attentionRow describes a case of Attention and its gradient.
type attentionRow struct {
	name  string
	n, m  string // queries and keys
	a     ir.AttentionAttr
	see   interval
	bias  string // type of the bias
	pages string // type of the page table, if the keys are paged
	order []float64
	bench bool
}

var attentionRows = []attentionRow{
	{name: "causal", n: "7", m: "7", a: heads(3, 3, 8), see: causal},
	{name: "full", n: "5", m: "9", a: heads(2, 2, 10), see: all(9)},
	{name: "one head", n: "4", m: "4", a: heads(1, 1, 5), see: causal},
	{name: "grouped", n: "7", m: "7", a: heads(6, 2, 4), see: causal},
	{name: "one key head", n: "6", m: "6", a: heads(4, 1, 6), see: causal},
	{name: "packed", n: "11", m: "11", a: heads(2, 1, 8), see: packed(0, 4, 5)},
	{name: "window", n: "12", m: "12", a: windowed(heads(2, 2, 8), 4), see: causal},
	{name: "window and packed", n: "12", m: "12", a: windowed(heads(4, 2, 8), 3), see: packed(0, 7)},
	{name: "both sides", n: "12", m: "12", a: heads(4, 2, 8), see: near(3, 0, 5, 12)},
	{name: "tiles of both sides", n: "150", m: "150", a: heads(2, 1, 16), see: near(9, 0, 61, 150)},
	{name: "empty", n: "7", m: "7", a: heads(2, 1, 8), see: holes(causal)},
	{name: "all empty", n: "3", m: "4", a: heads(2, 1, 8), see: func(int) (int, int) { return 2, 2 }},
	{name: "cache", n: "3", m: "17", a: heads(4, 2, 8), see: after(9)},
	{name: "decode", n: "1", m: "33", a: heads(4, 2, 16), see: after(20)},
	{name: "bounded", n: "n", m: "n", a: heads(2, 1, 8), see: causal},
	{name: "bounded cache", n: "n", m: "m", a: heads(2, 2, 8), see: after(6)},
	{name: "bounded keys", n: "2", m: "m", a: windowed(heads(2, 2, 8), 5), see: all(13)},
	{name: "tiles", n: "150", m: "150", a: heads(2, 1, 16), see: packed(0, 61)},
	{name: "soft cap", n: "11", m: "11", a: capped(heads(4, 2, 8), 0.9), see: packed(0, 4)},
	{name: "soft cap of a cache", n: "3", m: "17", a: capped(windowed(heads(2, 1, 8), 6), 1.3), see: after(9)},
	{name: "soft cap of tiles", n: "150", m: "150", a: capped(heads(2, 1, 16), 1.1), see: causal},
	{name: "bias", n: "7", m: "9", a: biased(heads(4, 2, 8), ir.ScoreBias), see: all(9), bias: "f32[4,7,9]"},
	{name: "bias of all heads", n: "5", m: "9", a: biased(heads(4, 2, 8), ir.ScoreBias), see: all(9), bias: "f32[1,5,9]"},
	{name: "bias of keys", n: "5", m: "9", a: biased(heads(2, 2, 8), ir.ScoreBias), see: all(9), bias: "f32[2,1,9]"},
	{name: "bias of queries", n: "5", m: "9", a: biased(heads(2, 2, 8), ir.ScoreBias), see: holes(all(9)), bias: "f32[2,5,1]"},
	{name: "bias and soft cap", n: "n", m: "n", a: capped(biased(heads(2, 1, 8), ir.ScoreBias), 1.2), see: causal, bias: "f32[2,n,n]"},
	{name: "relative bias", n: "150", m: "150", a: biased(heads(2, 2, 8), ir.RelativeBias), see: packed(0, 61), bias: "f32[2,65]"},
	{name: "relative bias of all heads", n: "n", m: "n", a: biased(heads(2, 1, 8), ir.RelativeBias), see: all(5), bias: "f32[1,5]"},
	{name: "pages", n: "3", m: "24", a: paged(heads(4, 2, 8), 4), see: after(9), pages: "i32[3]", order: []float64{5, 0, 3}},
	{name: "pages and window", n: "5", m: "24", a: paged(windowed(heads(2, 1, 8), 6), 2), see: holes(after(9)), pages: "i32[7]", order: []float64{9, 3, 4, 5, 0, 11, 2}},
	{name: "shared pages and soft cap", n: "4", m: "16", a: paged(capped(heads(2, 2, 8), 1.2), 4), see: between(0, 9, 0, 10, 12, 23, 12, 24),
		pages: "i32[6]", order: []float64{2, 1, 3, 2, 1, 0}},
	{name: "bounded pages", n: "n", m: "4m", a: paged(heads(2, 1, 8), 4), see: after(6), pages: "i32[m]", order: []float64{1, 12, 0, 2, 3, 3, 5, 5, 0, 0, 0, 9, 1}},
	{name: "a page for each key", n: "2", m: "9", a: paged(heads(2, 1, 8), 1), see: all(4), pages: "i32[4]", order: []float64{8, 0, 3, 3}},
	{name: "pages of tiles", n: "150", m: "224", a: paged(heads(4, 2, 16), 16), see: packed(0, 61), pages: "i32[10]", order: []float64{13, 0, 1, 2, 9, 5, 6, 12, 11, 3}},
	{name: "pages of tiles, heads of 40", n: "70", m: "96", a: paged(softened(heads(3, 1, 40), 0.1), 16), see: packed(0, 33), pages: "i32[5]", order: []float64{5, 0, 1, 2, 4}},
	{name: "pages of tiles, heads of 100", n: "70", m: "96", a: paged(softened(capped(heads(4, 2, 100), 1.3), 0.1), 16), see: packed(0, 33), pages: "i32[5]", order: []float64{5, 0, 1, 2, 4}},
	{name: "pages of tiles, heads of 200", n: "70", m: "96", a: paged(softened(windowed(heads(2, 1, 200), 20), 0.1), 16), see: packed(0, 33), pages: "i32[5]", order: []float64{5, 0, 1, 2, 4}},
	{name: "pages of tiles, heads of 300", n: "70", m: "96", a: paged(softened(capped(heads(2, 1, 300), 1.3), 0.1), 16), see: packed(0, 33), pages: "i32[5]", order: []float64{5, 0, 1, 2, 4}},
	{name: "pages of tiles, one head of 512", n: "70", m: "96", a: paged(softened(heads(1, 1, 512), 0.05), 16), see: packed(0, 33), pages: "i32[5]", order: []float64{5, 0, 1, 2, 4}},
	{name: "pages, heads of 512", n: "3", m: "24", a: paged(softened(heads(4, 1, 512), 0.05), 4), see: after(9), pages: "i32[3]", order: []float64{5, 0, 3}},
	{name: "chunks", n: "3", m: "700", a: heads(4, 2, 16), see: between(0, 700, 3, 130, 500, 629)},
	{name: "chunks and window", n: "3", m: "700", a: windowed(capped(heads(3, 1, 8), 1.1), 290), see: between(0, 700, 3, 130, 200, 629)},
	{name: "pages of several texts", n: "7", m: "448", a: paged(heads(6, 2, 12), 16), see: between(0, 290, 0, 291, 304, 305, 320, 480, 480, 483, 490, 490, 496, 530),
		pages: "i32[34]", order: []float64{13, 0, 1, 2, 9, 5, 6, 12, 11, 3, 27, 26, 20, 21, 4, 7, 8, 10, 14, 19, 17, 13, 0, 1, 25, 24, 23, 22, 18, 16, 15, 2, 9, 5}},
	{name: "pages of several texts and window", n: "5", m: "448", a: paged(windowed(capped(heads(2, 1, 8), 1.2), 170), 16), see: between(0, 290, 0, 291, 304, 305, 320, 480, 320, 481),
		pages: "i32[34]", order: []float64{13, 0, 1, 2, 9, 5, 6, 12, 11, 3, 27, 26, 20, 21, 4, 7, 8, 10, 14, 19, 17, 13, 0, 1, 25, 24, 23, 22, 18, 16, 15, 2, 9, 5}},
	{name: "bench", n: "512", m: "512", a: heads(16, 4, 64), see: causal, bench: true},
}

func heads(q, kv, dim int) ir.AttentionAttr {
	return ir.AttentionAttr{Heads: q, KVHeads: kv, HeadDim: dim, Scale: 0.4}
}

// softened sets the scale of the scores, which grow with the size of heads.
func softened(a ir.AttentionAttr, scale float32) ir.AttentionAttr {
	a.Scale = scale
	return a
}

func windowed(a ir.AttentionAttr, n int) ir.AttentionAttr {
	a.Window = n
	return a
}

func capped(a ir.AttentionAttr, c float32) ir.AttentionAttr {
	a.SoftCap = c
	return a
}

func paged(a ir.AttentionAttr, rows int) ir.AttentionAttr {
	a.Page = rows
	return a
}

func biased(a ir.AttentionAttr, b ir.AttentionBias) ir.AttentionAttr {
	a.Bias = b
	return a
}

func attentionCases() []testCase {
	var out []testCase
	for _, r := range attentionRows {
		q, k := fmt.Sprintf("f32[%s,%d]", r.n, r.a.Heads*r.a.HeadDim), fmt.Sprintf("f32[%s,%d]", r.m, r.a.KVHeads*r.a.HeadDim)
		ends := fmt.Sprintf("i32[%s]", r.n)
		lo, hi := arg(ends, r.see.fill(false)), arg(ends, r.see.fill(true))
		out = append(out, testCase{op: ir.Attention, name: r.name, bounds: "n=5/8 m=13/16", limit: attentionLimit, bench: r.bench, lossOuts: 1,
			in: []input{arg(q, normal), arg(k, normal), arg(k, normal), lo, hi},
			build: func(g *ir.Graph, in []ir.Value) []ir.Value {
				o, lse := g.Attention(in[0], in[1], in[2], in[3], in[4], r.a, in[5:]...)
				return []ir.Value{o, lse}
			}})
		if r.bias == "" && !r.bench {
			c := out[len(out)-1]
			c.op, c.name = ir.SinkAttention, r.name+", sinks"
			c.in = append(slices.Clone(c.in), arg(fmt.Sprintf("f32[%d]", r.a.Heads), normal))
			if r.pages != "" {
				for i := range c.in {
					c.in[i].frozen = true
				}
				c.in = slices.Insert(c.in, 5, arg(r.pages, values(r.order...)))
			}
			c.build = func(g *ir.Graph, in []ir.Value) []ir.Value {
				last := len(in) - 1
				o, lse := g.SinkAttention(in[0], in[1], in[2], in[3], in[4], in[last], r.a, in[5:last]...)
				return []ir.Value{o, lse}
			}
			out = append(out, c)
			out[len(out)-1], out[len(out)-2] = out[len(out)-2], out[len(out)-1]
		}
		// The output and the log-sum-exp must come from the forward pass, as in training; other values would not match
		// the scores.
		if r.pages != "" { // paged keys have no gradient
			c := &out[len(out)-1]
			for i := range c.in {
				c.in[i].frozen = true
			}
			c.in = append(c.in, arg(r.pages, values(r.order...)))
			continue
		}
		back := testCase{op: ir.AttentionGrad, name: r.name, bounds: "n=5/8 m=13/16", limit: attentionLimit, bench: r.bench,
			in: []input{arg(q, normal), arg(q, normal), arg(k, normal), arg(k, normal), lo, hi},
			build: func(g *ir.Graph, in []ir.Value) []ir.Value {
				o, lse := g.Attention(in[1], in[2], in[3], in[4], in[5], r.a, in[6:]...)
				d := g.Apply(ir.AttentionGrad, r.a, append([]ir.Value{in[0], in[1], in[2], in[3], o, lse, in[4], in[5]}, in[6:]...)...)
				return []ir.Value{d, g.Out(d, 1), g.Out(d, 2)}
			}}
		if r.bias != "" {
			bias := frozen(r.bias, normal)
			out[len(out)-1].in = append(out[len(out)-1].in, bias)
			back.in = append(back.in, bias)
		}
		for i := range back.in {
			// The gradient of AttentionGrad would need a gradient of the log-sum-exp. It is never needed, since nothing
			// differentiates twice.
			back.in[i].frozen = true
		}
		out = append(out, back)
	}
	// If the bounds are constants and include all keys, decomposed attention needs no mask.
	return append(out, testCase{op: ir.Attention, name: "all keys, wide heads", limit: attentionLimit, lossOuts: 1,
		in: []input{arg("f32[7,520]", normal), arg("f32[9,520]", normal), arg("f32[9,520]", normal)},
		build: func(g *ir.Graph, in []ir.Value) []ir.Value {
			ends := ir.Type{DType: tensor.I32, Shape: ir.ShapeOf(7)}
			o, lse := g.Attention(in[0], in[1], in[2], g.Const(0, ends), g.Const(9, ends), ir.AttentionAttr{Heads: 2, KVHeads: 2, HeadDim: 260, Scale: 0.06})
			return []ir.Value{o, lse}
		}})
}
