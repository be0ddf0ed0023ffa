package nn

import (
	"github.com/lorafuse/lorafuse/graph"
	"github.com/lorafuse/lorafuse/internal/ir"
	"github.com/lorafuse/lorafuse/tensor"
	"math"
)

// Linear returns x Wᵀ, plus a bias if bias is set: x [n, in], W [out, in].
func (b *Builder) Linear(name string, x graph.Tensor, out int, bias bool) graph.Tensor {
	if !x.Valid() {
		return x
	}
	b.modules = append(b.modules, Module{Name: b.prefix + name, Kind: KindLinear, In: x.Type().Last().N, Out: out, Bias: bias})
	return b.LinearAgain(name, x, out, bias)
}

// LinearAgain applies a layer that Linear has applied, with its adapter, to other rows.
func (b *Builder) LinearAgain(name string, x graph.Tensor, out int, bias bool) graph.Tensor {
	if !x.Valid() {
		return x
	}
	m := Module{Name: b.prefix + name, Kind: KindLinear, In: x.Type().Last().N, Out: out, Bias: bias}
	w, c := b.linearParams(m, m.Name)
	return b.linear(m, x, w, c)
}

// TransposedSuffix is appended to the name of a weight to name the same weight with its last two
// axes exchanged.
const TransposedSuffix = ".transposed"

// Conv1D returns x W + bias: a linear layer whose weight W is stored as [in, out]. Like other
// layers it computes with a weight [out, in], so that the same kernels are used.
func (b *Builder) Conv1D(name string, x graph.Tensor, out int) graph.Tensor {
	if !x.Valid() {
		return x
	}
	m := Module{Name: b.prefix + name, Kind: KindConv1D, In: x.Type().Last().N, Out: out, Bias: true}
	b.modules = append(b.modules, m)
	stored := m.Name + ".weight"
	w, c := b.Frozen(stored+TransposedSuffix, m.Out, m.In), b.param(m, "bias", m.Name+".bias", m.Out)
	if b.adapter != nil && w.Valid() {
		if own := b.adapter.Param(b, m, stored, w); own != w {
			w = own.Transpose(1, 0) // the adapter has it as the file
		}
	}
	return b.linear(m, x, w, c)
}

func (b *Builder) linearParams(m Module, stored string) (w, c graph.Tensor) {
	w = b.param(m, "weight", stored+".weight", m.Out, m.In)
	if m.Bias {
		c = b.param(m, "bias", stored+".bias", m.Out)
	}
	return w, c
}

func (b *Builder) linear(m Module, x, w, c graph.Tensor) graph.Tensor {
	if b.adapter != nil {
		if y, ok := b.adapter.Linear(b, m, x, w, c); ok {
			return y
		}
	}
	return x.Linear(w, c)
}

// Table is the meaning of the rows of an embedding.
type Table uint8

// The kinds of tables.
const (
	Vocabulary Table = iota // tokens: the input embedding of a language model
	Attributes              // anything else, such as positions or the types of tokens
)

// Embedding returns the rows ids [n] of a table [count, size]. If the table is trained, row
// padding gets no gradient; -1 means no padding.
func (b *Builder) Embedding(kind Table, name string, ids graph.Tensor, count, size, padding int) graph.Tensor {
	m := Module{Name: b.prefix + name, Kind: KindEmbedding, In: count, Out: size, Padding: padding, InputEmbedding: kind == Vocabulary}
	b.modules = append(b.modules, m)
	return b.choose(m, func(b *Builder) graph.Tensor {
		w := b.param(m, "weight", m.Name+".weight", count, size)
		if b.adapter != nil {
			if y, ok := b.adapter.Embedding(b, m, ids, w); ok {
				return y
			}
		}
		rows := w.Gather(ids)
		if w != b.Frozen(m.Name+".weight", count, size) {
			rows = b.WithoutPadding(m, ids, rows)
		}
		return rows
	})
}

// choose builds a layer, possibly with separate parameters for some rows.
func (b *Builder) choose(m Module, layer func(*Builder) graph.Tensor) graph.Tensor {
	if b.adapter != nil {
		if y, ok := b.adapter.Choose(b, m, layer); ok {
			return y
		}
	}
	return layer(b)
}

// WithoutPadding returns rows [n, size] of an embedding, or an adapter's contribution to them,
// without a gradient for the padding row.
func (b *Builder) WithoutPadding(m Module, ids, rows graph.Tensor) graph.Tensor {
	if m.Padding < 0 || !rows.Valid() {
		return rows
	}
	n := ids.Type().Shape[0]
	pad := b.G.Of(b.G.IR().Const(float64(m.Padding), ir.Type{DType: tensor.I32, Shape: ir.Shape{}}))
	is := ids.Compare(ir.Equal, pad).Reshape(n, ir.Static(1))
	return is.Where(rows.Detach(), rows)
}

// RMSNorm scales the rows of x to a mean square of one, times a weight.
func (b *Builder) RMSNorm(name string, x graph.Tensor, eps float32) graph.Tensor {
	return b.RMSNormFrom(name, x, eps, 0)
}

// RMSNormFrom normalizes like RMSNorm, but stores the weight as its difference from origin:
// the rows are multiplied by origin + weight.
func (b *Builder) RMSNormFrom(name string, x graph.Tensor, eps float32, origin float64) graph.Tensor {
	if !x.Valid() {
		return x
	}
	d := x.Type().Last().N
	m := Module{Name: b.prefix + name, Kind: KindNorm, In: d, Out: d}
	b.modules = append(b.modules, m)
	return b.choose(m, func(b *Builder) graph.Tensor {
		w := b.param(m, "weight", m.Name+".weight", d).Cast(tensor.F32)
		if origin != 0 {
			w = w.AddScalar(origin)
		}
		return x.RMSNorm(w, eps)
	})
}

// LayerNorm normalizes the rows of x to mean 0 and variance 1, multiplies by a weight and adds
// a bias.
func (b *Builder) LayerNorm(name string, x graph.Tensor, eps float32) graph.Tensor {
	if !x.Valid() {
		return x
	}
	d := x.Type().Last().N
	m := Module{Name: b.prefix + name, Kind: KindNorm, In: d, Out: d, Bias: true}
	b.modules = append(b.modules, m)
	return b.choose(m, func(b *Builder) graph.Tensor {
		w, c := b.param(m, "weight", m.Name+".weight", d), b.param(m, "bias", m.Name+".bias", d)
		return x.LayerNorm(w.Cast(tensor.F32), c.Cast(tensor.F32), eps)
	})
}

// LayerNormScaled normalizes the rows of x to mean 0 and variance 1 and multiplies by a weight.
func (b *Builder) LayerNormScaled(name string, x graph.Tensor, eps float32) graph.Tensor {
	if !x.Valid() {
		return x
	}
	d := x.Type().Last().N
	m := Module{Name: b.prefix + name, Kind: KindNorm, In: d, Out: d}
	b.modules = append(b.modules, m)
	return b.choose(m, func(b *Builder) graph.Tensor {
		return x.LayerNorm(b.param(m, "weight", m.Name+".weight", d).Cast(tensor.F32), graph.Tensor{}, eps)
	})
}

// HeadNormScaled applies LayerNormScaled to each head of x [n, heads·d]. Heads have weights of
// their own, [heads, d].
func (b *Builder) HeadNormScaled(name string, x graph.Tensor, headDim int, eps float32) graph.Tensor {
	if !x.Valid() {
		return x
	}
	heads := x.Type().Last().N / headDim
	m := Module{Name: b.prefix + name, Kind: KindNorm, In: headDim, Out: headDim, Count: heads}
	b.modules = append(b.modules, m)
	return b.choose(m, func(b *Builder) graph.Tensor {
		w := b.param(m, "weight", m.Name+".weight", heads, headDim).Cast(tensor.F32)
		return PerHead(x, headDim, func(x graph.Tensor) graph.Tensor { return x.LayerNorm(graph.Tensor{}, graph.Tensor{}, eps).Mul(w) })
	})
}

// PerHead applies f to each head of x [n, heads·d] as a row of its own: a norm
// of heads, mostly.
func PerHead(x graph.Tensor, headDim int, f func(graph.Tensor) graph.Tensor) graph.Tensor {
	if !x.Valid() {
		return x
	}
	s := x.Type().Shape
	return f(x.Reshape(s[0], ir.Static(s[1].N/headDim), ir.Static(headDim))).Reshape(s...)
}

// Head is the output layer of a language model. It computes logits, or a loss without holding
// the logits of all tokens at once.
type Head struct {
	b       *Builder
	m       Module
	x, w, c graph.Tensor
	cap     float64 // 0: none, see SoftCapped
	scale   float64 // 0: none, see Scaled
}

// Head returns the named output layer over x [n, size]. If tied is not empty, it uses the
// weight of the module tied.
func (b *Builder) Head(name string, x graph.Tensor, vocab int, tied string) Head {
	m := Module{Name: b.prefix + name, Kind: KindLinear, In: x.Type().Last().N, Out: vocab, OutputEmbedding: true, TiedTo: tied}
	b.modules = append(b.modules, m)
	stored := m.Name
	if tied != "" {
		stored = tied
	}
	w, c := b.linearParams(m, stored)
	return Head{b: b, m: m, x: x, w: w, c: c}
}

// SoftCapped is the head with logits y bounded to limit·tanh(y/limit) (Gemma Team 2024, arXiv
// 2408.00118).
func (h Head) SoftCapped(limit float64) Head {
	h.cap = limit
	return h
}

// Scaled returns the head with logits multiplied by a factor. Zero means no factor.
func (h Head) Scaled(factor float64) Head {
	h.scale = factor
	return h
}

// Hidden returns the input of the head.
func (h Head) Hidden() graph.Tensor { return h.x }

// Rows returns the head applied only to the rows index i32 [k] of its input.
func (h Head) Rows(index graph.Tensor) Head {
	if h.x.Valid() {
		h.x, h.b = h.x.Gather(index), h.b.IndexSelect(index)
	}
	return h
}

// Logits returns the scores of all tokens of the vocabulary: [n, vocab].
func (h Head) Logits() graph.Tensor { return h.finished(h.b.linear(h.m, h.x, h.w, h.c)) }

// finished applies the factor and the soft cap to the products y.
func (h Head) finished(y graph.Tensor) graph.Tensor {
	if h.scale != 0 && y.Valid() {
		y = y.Scale(h.scale)
	}
	if h.cap == 0 || !y.Valid() {
		return y
	}
	// A quotient, as in transformers: a factor would become part of the products, and their
	// rounding that of no product of several adapters.
	return y.Div(h.b.G.Const(h.cap)).Apply(ir.Tanh).Scale(h.cap)
}

// Losses returns the cross-entropy of each row, zero if its label is negative. ok is false if
// the full logits are needed: the head has a bias, a soft cap or a factor that rounds, or an
// adapter changes it.
func (h Head) Losses(labels graph.Tensor) (losses graph.Tensor, ok bool) {
	if h.b.adapter != nil {
		if _, ok := h.b.adapter.Linear(h.b, h.m, h.x, h.w, h.c); ok {
			return graph.Tensor{}, false
		}
	}
	if h.needsLogits() {
		return graph.Tensor{}, false
	}
	return h.scaledInput().LinearCrossEntropyByRow(h.w, labels), true
}

// RowLosses returns the cross-entropy of each row, zero if its label is negative. It computes
// full logits if it must.
func (h Head) RowLosses(labels graph.Tensor) graph.Tensor {
	if losses, ok := h.Losses(labels); ok {
		return losses
	}
	return h.Logits().CrossEntropyByRow(labels)
}

// Loss returns the cross-entropy summed over the labels that are not negative.
func (h Head) Loss(labels graph.Tensor) graph.Tensor {
	if h.b.adapter != nil {
		if y, ok := h.b.adapter.Linear(h.b, h.m, h.x, h.w, h.c); ok {
			return h.finished(y).CrossEntropy(labels)
		}
	}
	if h.needsLogits() {
		return h.Logits().CrossEntropy(labels)
	}
	return h.scaledInput().LinearCrossEntropy(h.w, labels)
}

// argmaxScale is a power of two, so that the products of a scaled input are those of the input
// exactly, scaled.
const argmaxScale = 1 << 32

// Correct returns the number of labels that are not negative and have the largest of the logits,
// f32. Without a bias or an adapter it never holds the logits: the loss of scaled logits is near
// 0 if that of the label is the largest, and else at least log 2. Neither a soft cap nor a
// positive factor changes which is the largest. A label that shares the largest logit with
// another token counts as wrong.
func (h Head) Correct(labels graph.Tensor) graph.Tensor {
	if !h.x.Valid() || !labels.Valid() {
		return graph.Tensor{}
	}
	g, rows := h.b.G, labels.Type().Shape[0]
	count := func(right graph.Tensor) graph.Tensor {
		return right.Where(g.Const(1, rows), g.Const(0, rows)).Sum(0)
	}
	y := graph.Tensor{}
	if h.b.adapter != nil {
		y, _ = h.b.adapter.Linear(h.b, h.m, h.x, h.w, h.c)
	}
	if h.c.Valid() || h.scale < 0 {
		y = h.Logits()
	}
	if y.Valid() {
		return count(y.ArgMax().Compare(ir.Equal, labels))
	}
	near := h.x.Scale(argmaxScale).LinearCrossEntropyByRow(h.w, labels)
	valid := labels.Compare(ir.GreaterEqual, g.Of(g.IR().Const(0, labels.Type())))
	return count(near.Compare(ir.Less, valid.Where(g.Const(0.5, rows), g.Const(-1, rows))))
}

// needsLogits reports whether losses need the full logits, since losses equal those of the full
// logits bit for bit. They do if a bias or a soft cap changes the products, or if the factor
// rounds them. A power of two does not, so the input is multiplied by it instead.
func (h Head) needsLogits() bool {
	mantissa, _ := math.Frexp(math.Abs(h.scale))
	return h.c.Valid() || h.cap > 0 || h.scale != 0 && mantissa != 0.5
}

// scaledInput returns the input times the factor of the logits, for losses that never hold the
// logits.
func (h Head) scaledInput() graph.Tensor {
	if h.scale == 0 || !h.x.Valid() {
		return h.x
	}
	return h.x.Scale(h.scale)
}
