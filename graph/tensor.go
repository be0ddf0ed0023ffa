package graph

import (
	"github.com/lorafuse/lorafuse/internal/ir"
	"github.com/lorafuse/lorafuse/tensor"
)

// Value returns the node of the tensor in [Graph.IR]; see [Graph.Of].
func (t Tensor) Value() ir.Value { return t.v }

// Graph returns the graph of the tensor.
func (t Tensor) Graph() *Graph { return t.g }

// Type returns the element type and the shape.
func (t Tensor) Type() ir.Type { return t.g.ir.Type(t.v) }

// Valid reports whether t has a value. The zero Tensor and the result of [Graph.Fail] have none.
func (t Tensor) Valid() bool { return t.g != nil && t.v != 0 }

func (t Tensor) of(v ir.Value) Tensor { return Tensor{t.g, v} }

// with returns the node of another operand of an operation on t.
func (t Tensor) with(u Tensor) ir.Value { return t.g.value(u) }

// Add computes t + u. Axes of size one and missing outer axes are broadcast, here and in the operations below.
func (t Tensor) Add(u Tensor) Tensor { return t.of(t.g.ir.Add(t.v, t.with(u))) }

// Sub computes t - u.
func (t Tensor) Sub(u Tensor) Tensor { return t.of(t.g.ir.Sub(t.v, t.with(u))) }

// Mul computes t · u, element by element.
func (t Tensor) Mul(u Tensor) Tensor { return t.of(t.g.ir.Mul(t.v, t.with(u))) }

// Div computes t / u.
func (t Tensor) Div(u Tensor) Tensor { return t.of(t.g.ir.Div(t.v, t.with(u))) }

// Min computes the element-wise minimum of t and u.
func (t Tensor) Min(u Tensor) Tensor { return t.of(t.g.ir.Binary(ir.Min, t.v, t.with(u))) }

// Scale computes c·t.
func (t Tensor) Scale(c float64) Tensor { return t.of(t.g.ir.Scale(t.v, c)) }

// AddScalar computes t + c.
func (t Tensor) AddScalar(c float64) Tensor { return t.of(t.g.ir.AddScalar(t.v, c)) }

// Apply applies fn to each element.
func (t Tensor) Apply(fn ir.UnaryFn) Tensor { return t.of(t.g.ir.Unary(fn, t.v)) }

// Cast converts the elements to d.
func (t Tensor) Cast(d tensor.DType) Tensor { return t.of(t.g.ir.Cast(t.v, d)) }

// Dequantize widens matrices of 8-bit floats to f32 and multiplies each block of a matrix by its scale. See
// [ir.DequantizeAttr].
func (t Tensor) Dequantize(scale Tensor, a ir.DequantizeAttr) Tensor {
	return t.of(t.g.ir.Dequantize(t.v, t.with(scale), a))
}

// Reshape returns t with another shape of the same number of elements.
func (t Tensor) Reshape(shape ...ir.Dim) Tensor { return t.of(t.g.ir.Reshape(t.v, shape)) }

// Detach returns t as a constant for gradients.
func (t Tensor) Detach() Tensor { return t.of(t.g.ir.Detach(t.v)) }

// Where selects x where the bool t is true and y elsewhere.
func (t Tensor) Where(x, y Tensor) Tensor { return t.of(t.g.ir.Where(t.v, t.with(x), t.with(y))) }

// Compare evaluates the relation fn between t and u, as bool.
func (t Tensor) Compare(fn ir.CompareFn, u Tensor) Tensor {
	return t.of(t.g.ir.Compare(fn, t.v, t.with(u)))
}

// Gemm computes a sum of products; bias and c may be the zero Tensor.
func (g *Graph) Gemm(products []ir.Product, bias, c Tensor) Tensor {
	return g.Of(g.ir.Gemm(products, g.value(bias), g.value(c)))
}

// Transpose permutes the axes in the order perm.
func (t Tensor) Transpose(perm ...int) Tensor { return t.of(t.g.ir.Transpose(t.v, perm...)) }

// Slice returns the range [start, end) of one axis. Negative axes and indices count from the end; [End] is the end of
// an axis. For an axis of N times a bounded dimension, the indices count in units of that dimension.
func (t Tensor) Slice(axis, start, end int) Tensor { return t.slice(axis, start, end) }

// Sum sums along an axis, which is removed.
func (t Tensor) Sum(axis int) Tensor { return t.of(t.g.ir.Reduce(ir.ReduceSum, t.v, axis)) }

// SumSquares computes the sum of all squares.
func (t Tensor) SumSquares() Tensor { return t.of(t.g.ir.SumSquares(t.v)) }

// ArgMax computes the index of the largest element along the last axis.
func (t Tensor) ArgMax() Tensor { return t.of(t.g.ir.ArgMax(t.v)) }

// TopK returns the k largest elements along the last axis, largest first, and their indices.
func (t Tensor) TopK(k int) (values, indices Tensor) {
	v, i := t.g.ir.TopK(t.v, k)
	return t.of(v), t.of(i)
}

// Softmax computes the softmax along the last axis.
func (t Tensor) Softmax() Tensor { return t.of(t.g.ir.Softmax(t.v)) }

// MatMul computes t · u for t [..., m, k] and u [k, n] or [..., k, n]. If u has no leading axes, leading axes of t are
// rows; otherwise they are batch axes and are broadcast. A vector is a row on the left and a column on the right.
func (t Tensor) MatMul(u Tensor) Tensor { return t.matMul(u, false) }

// MatMulT computes t · uᵀ for u [n, k] or [..., n, k]; see MatMul.
func (t Tensor) MatMulT(u Tensor) Tensor { return t.matMul(u, true) }

// RowsWeights holds the matrices that [Tensor.RowsGemm] selects from by row.
type RowsWeights struct {
	// Matrices are separate matrices of any size, or one stack of them if Stacked.
	Matrices []Tensor
	Stacked  bool
	// Out is the number of columns of the result. Zero means the width of the widest matrix.
	Out int
	// Scale f32[e] and Bias f32[e,Out] may be the zero Tensor.
	Scale, Bias Tensor
}

// RowsGemm computes c + bias[e] + scale[e]·t W[e]ᵀ with e = index[row], for matrices [out, in]. Use it for the adapters
// of a mixed batch, for experts, or for the two streams of a diffusion transformer. A row with index -1 gets the row of
// c, or zeros. c may be the zero Tensor. See [ir.RowsGemm].
func (t Tensor) RowsGemm(index Tensor, w RowsWeights, c Tensor) Tensor {
	p := ir.RowsProduct{X: t.v, Index: t.with(index), Stacked: w.Stacked, TB: true, Width: w.Out, Scale: t.with(w.Scale), Bias: t.with(w.Bias), C: t.with(c)}
	for _, m := range w.Matrices {
		p.Weights = append(p.Weights, t.with(m))
	}
	return t.of(t.g.ir.RowsGemm(p))
}

// Linear computes t Wᵀ + bias for t [..., in] and a weight [out, in]; bias may be the zero Tensor.
func (t Tensor) Linear(w, bias Tensor) Tensor { return t.linear(w, bias) }

// LoRA computes t Wᵀ + bias + scale·h Bᵀ, with h = dropout(t) Aᵀ from [Tensor.LoRADown], as one matrix product with a
// longer inner axis. Leading axes are rows.
func (t Tensor) LoRA(w, bias, h, b Tensor, scale float64) Tensor {
	return t.lora(w, bias, h, b, scale)
}

// LoRADown computes dropout(t) Aᵀ for t [..., in] and A [rank, in]. key may be the zero Tensor if d.P is zero.
func (t Tensor) LoRADown(a, key Tensor, d ir.DropoutAttr) Tensor { return t.loraDown(a, key, d) }

// Dropout sets elements to zero with probability d.P and scales the rest by 1/(1−P).
func (t Tensor) Dropout(key Tensor, d ir.DropoutAttr) Tensor {
	return t.of(t.g.ir.Dropout(t.v, t.with(key), d))
}

// RMSNorm scales rows to a mean square of one and multiplies by w.
func (t Tensor) RMSNorm(w Tensor, eps float32) Tensor {
	return t.of(t.g.ir.RMSNorm(t.v, t.with(w), eps))
}

// LayerNorm normalizes rows to mean 0 and variance 1, multiplies by w and adds b. w and b may be the zero Tensor.
func (t Tensor) LayerNorm(w, b Tensor, eps float32) Tensor {
	return t.of(t.g.ir.LayerNorm(t.v, t.with(w), t.with(b), eps))
}

// GroupNorm normalizes each group of channels of each sample of images t [b, ..., c] to mean 0 and variance 1,
// multiplies by w and adds b.
func (t Tensor) GroupNorm(w, b Tensor, groups int, eps float32) Tensor {
	return t.of(t.g.ir.GroupNorm(t.v, t.with(w), t.with(b), groups, eps))
}

// Conv2D convolves images t [b, h, w, c] with w [out, kh, kw, c]; bias may be the zero Tensor. See [ir.Conv2D].
func (t Tensor) Conv2D(w, bias Tensor, a ir.Conv2DAttr) Tensor {
	return t.of(t.g.ir.Conv2D(t.v, t.with(w), t.with(bias), a))
}

// Upsample enlarges images t [b, h, w, c] by an integer factor, with nearest-neighbour interpolation.
func (t Tensor) Upsample(times int) Tensor { return t.of(t.g.ir.Upsample(t.v, times)) }

// Activate applies act to each element.
func (t Tensor) Activate(act ir.Activation) Tensor { return t.of(t.g.ir.Activate(t.v, act)) }

// GLU computes act(t) · up.
func (t Tensor) GLU(up Tensor, act ir.Activation) Tensor {
	return t.of(t.g.ir.GLU(t.v, t.with(up), act))
}

// RoPE rotates the heads of t by the angles of table.
func (t Tensor) RoPE(table Tensor, headDim int) Tensor {
	return t.of(t.g.ir.RoPE(t.v, t.with(table), headDim))
}

// RoPEInterleaved applies RoPE to pairs of elements 2j and 2j+1 of a head, as diffusion transformers do.
func (t Tensor) RoPEInterleaved(table Tensor, headDim int) Tensor {
	return t.of(t.g.ir.RoPEInterleaved(t.v, t.with(table), headDim))
}

// RoPETable computes the cosines and sines for positions t.
func (t Tensor) RoPETable(inverseFrequencies Tensor, scale float32) Tensor {
	return t.of(t.g.ir.RoPETable(t.v, t.with(inverseFrequencies), scale))
}

// Attention computes attention of q = t over the keys [lo, hi) of each query. The last argument is the score bias if
// a.Bias is set, or the page table i32 [v] of k and v if a.Page is set.
func (t Tensor) Attention(k, v, lo, hi Tensor, a ir.AttentionAttr, last ...Tensor) Tensor {
	var values []ir.Value
	for _, x := range last {
		values = append(values, t.with(x))
	}
	o, _ := t.g.ir.Attention(t.v, t.with(k), t.with(v), t.with(lo), t.with(hi), a, values...)
	return t.of(o)
}

// SinkAttention computes Attention with a score of each head, sinks f32 [heads], that takes part in the softmax and has
// no value. The last argument is the page table if a.Page is set.
func (t Tensor) SinkAttention(k, v, lo, hi, sinks Tensor, a ir.AttentionAttr, last ...Tensor) Tensor {
	var pages []ir.Value
	for _, x := range last {
		pages = append(pages, t.with(x))
	}
	o, _ := t.g.ir.SinkAttention(t.v, t.with(k), t.with(v), t.with(lo), t.with(hi), t.with(sinks), a, pages...)
	return t.of(o)
}

// Gather returns the rows of the table t that ids select, as in an embedding lookup: for t [v, d]
// and ids i32 [...] the result is f32 [..., d]. Each id must be in [0, v).
func (t Tensor) Gather(ids Tensor) Tensor { return t.of(t.g.ir.GatherRows(t.v, t.with(ids))) }

// ScatterRows returns t with row index[i] replaced by row i of rows, for all i. index is i32; rows
// with a negative index are skipped. See [ir.ScatterRows].
func (t Tensor) ScatterRows(rows, index Tensor) Tensor {
	return t.of(t.g.ir.ScatterRows(t.v, t.with(rows), t.with(index)))
}

// UpdateRows overwrites rows of t, starting at row offset[0].
func (t Tensor) UpdateRows(rows, offset Tensor) Tensor {
	return t.of(t.g.ir.UpdateRows(t.v, t.with(rows), t.with(offset)))
}

// CrossEntropy computes the summed loss of the logits t.
func (t Tensor) CrossEntropy(labels Tensor) Tensor {
	return t.of(t.g.ir.CrossEntropy(t.v, t.with(labels)))
}

// CrossEntropyByRow computes the loss of each row of the logits t, [n], with zero for rows without a label.
func (t Tensor) CrossEntropyByRow(labels Tensor) Tensor {
	return t.of(t.g.ir.CrossEntropyByRow(t.v, t.with(labels)))
}

// LinearCrossEntropy computes the summed loss of the logits t Wᵀ, a few rows at a time.
func (t Tensor) LinearCrossEntropy(w, labels Tensor) Tensor {
	return t.of(t.g.ir.LinearCrossEntropy(t.v, t.with(w), t.with(labels)))
}

// LinearCrossEntropyByRow computes the loss of each row of the logits t Wᵀ, [n], with zero for rows without a label.
func (t Tensor) LinearCrossEntropyByRow(w, labels Tensor) Tensor {
	return t.of(t.g.ir.LinearCrossEntropyByRow(t.v, t.with(w), t.with(labels)))
}

// AdamW returns the param t and its moments after one step.
func (t Tensor) AdamW(m, v, grad, rates, scale Tensor, a ir.AdamWAttr) (p2, m2, v2 Tensor) {
	x, y, z := t.g.ir.AdamW(t.v, t.with(m), t.with(v), t.with(grad), t.with(rates), t.with(scale), a)
	return t.of(x), t.of(y), t.of(z)
}

// AdamW8 returns the param t, the codes of its 8-bit moments and their scales after one step. maps holds the values of
// the codes, see [ir.AdamW8Maps].
func (t Tensor) AdamW8(m, v, mScale, vScale, grad, maps, rates, scale Tensor, a ir.AdamWAttr) (out [5]Tensor) {
	vs := t.g.ir.AdamW8(t.v, t.with(m), t.with(v), t.with(mScale), t.with(vScale), t.with(grad), t.with(maps), t.with(rates), t.with(scale), a)
	for i, v := range vs {
		out[i] = t.of(v)
	}
	return out
}

// Concat concatenates tensors along axis.
func Concat(axis int, ts ...Tensor) Tensor {
	vs := make([]ir.Value, len(ts))
	for i, t := range ts {
		vs[i] = ts[0].with(t)
	}
	return ts[0].of(ts[0].g.ir.Concat(axis, vs...))
}
