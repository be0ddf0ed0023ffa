package dit

import (
	"github.com/lorafuse/lorafuse/graph"
	"github.com/lorafuse/lorafuse/internal/ir"
	"github.com/lorafuse/lorafuse/internal/nn"
)

// stream is a sequence of tokens of one kind, with the same number of tokens for each sample.
// Samples are concatenated; values are [samples·tokens, size].
type stream struct {
	samples int
	tokens  ir.Dim // per sample
}

// keyedStream is a stream with its rotary table and the bounds of its keys.
type keyedStream struct {
	stream
	table, lo, hi graph.Tensor
}

// newStream returns the stream whose number of tokens is the given axis.
func newStream(b *nn.Builder, axis string) stream {
	return stream{b.Size(Samples), b.Axis(axis)}
}

// rows returns the axis of all tokens.
func (s stream) rows() ir.Dim { return ir.Dim{N: s.samples * s.tokens.N, Var: s.tokens.Var} }

// each applies f to x [rows, d] and v. Rows of v [samples, d] are repeated for all tokens of
// their sample; v [rows, d] has a row per token.
func (s stream) each(x, v graph.Tensor, f func(x, v graph.Tensor) graph.Tensor) graph.Tensor {
	if !x.Valid() || !v.Valid() {
		return x.Graph().Of(0)
	}
	shape, d := x.Type().Shape, x.Type().Last()
	if s.samples == 1 || v.Type().Shape[0] == s.rows() {
		return f(x, v)
	}
	n := ir.Static(s.samples)
	return f(x.Reshape(n, s.tokens, d), v.Reshape(n, ir.Static(1), d)).Reshape(shape...)
}

// scaled returns x·v.
func (s stream) scaled(x, v graph.Tensor) graph.Tensor { return s.each(x, v, graph.Tensor.Mul) }

// shifted returns x + v.
func (s stream) shifted(x, v graph.Tensor) graph.Tensor { return s.each(x, v, graph.Tensor.Add) }

// modulated returns LN(x)·(1 + scale) + shift with a LayerNorm LN without weights. It is the
// adaptive norm of diffusion transformers (Peebles and Xie 2022, arXiv 2212.09748). An absent
// shift counts as zero.
func (s stream) modulated(x, shift, scale graph.Tensor, eps float32) graph.Tensor {
	if !x.Valid() || !scale.Valid() {
		return x.Graph().Of(0)
	}
	none, d := graph.Tensor{}, x.Type().Last()
	scale = scale.AddScalar(1)
	if s.samples == 1 && scale.Type().Shape[0] == ir.Static(1) { // as norm weights, in one pass
		if shift.Valid() {
			shift = shift.Reshape(d)
		}
		return x.LayerNorm(scale.Reshape(d), shift, eps)
	}
	x = s.scaled(x.LayerNorm(none, none, eps), scale)
	if !shift.Valid() {
		return x
	}
	return s.shifted(x, shift)
}

// added returns x + gate·y.
func (s stream) added(x, y, gate graph.Tensor) graph.Tensor {
	if !x.Valid() || !y.Valid() {
		return x.Graph().Of(0)
	}
	return x.Add(s.scaled(y, gate))
}

// chunks splits the last axis of x into n equal parts.
func chunks(x graph.Tensor, n int) []graph.Tensor {
	parts := make([]graph.Tensor, n)
	size := 0
	if x.Valid() {
		size = x.Type().Last().N / n
	}
	for i := range parts {
		parts[i] = x.Slice(-1, i*size, (i+1)*size)
	}
	return parts
}

// withStill appends the sinusoids of timestep 0 to those of the samples, [samples, channels].
func withStill(x graph.Tensor, channels int) graph.Tensor {
	one, half := ir.Static(1), ir.Static(channels/2)
	cos, sin := x.Graph().Const(1, one, half), x.Graph().Const(0, one, half)
	return graph.Concat(0, x, graph.Concat(1, cos, sin))
}
