package ir

import (
	"fmt"

	"github.com/lorafuse/lorafuse/tensor"
)

// RowsGemmAttr describes the inputs of a RowsGemm: x and index, the weights, then the optional scale, bias and addend.
type RowsGemmAttr struct {
	Tables                  int  // number of separate matrices; 0: all are stacked in one value [e,...]
	TB                      bool // matrices are [out,in], as in checkpoints, instead of [in,out]
	Width                   int  // columns of the result
	HasScale, HasBias, HasC bool
}

// weights returns the number of inputs that hold matrices.
func (a RowsGemmAttr) weights() int { return max(1, a.Tables) }

// Matrices returns the number of matrices. Input number first is the first one that holds matrices.
func (a RowsGemmAttr) Matrices(in []Type, first int) int {
	if a.Tables > 0 {
		return a.Tables
	}
	return in[first].Shape[0].N
}

// Size returns the number of input columns and of output columns of matrix e.
func (a RowsGemmAttr) Size(in []Type, first, e int) (reads, gives int) {
	t := in[first]
	if a.Tables > 0 {
		t = in[first+e]
	}
	rows, cols := opShape(t.Shape, a.TB)
	return rows.N, cols.N
}

// Scale returns the index of the scale among the inputs, or -1. Input number first is the first one that holds
// matrices.
func (a RowsGemmAttr) Scale(first int) int {
	if !a.HasScale {
		return -1
	}
	return first + a.weights()
}

// Bias returns the index of the bias among the inputs, or -1.
func (a RowsGemmAttr) Bias() int {
	if !a.HasBias {
		return -1
	}
	return 2 + a.weights() + boolIndex(a.HasScale)
}

// C returns the index of the addend among the inputs, or -1.
func (a RowsGemmAttr) C() int {
	if !a.HasC {
		return -1
	}
	return 2 + a.weights() + boolIndex(a.HasScale) + boolIndex(a.HasBias)
}

const rowsGemmDoc = "a product that chooses its weights by row: y[i] = C[i] + bias[e] + scale[e]·x[i]·op(W[e]) with e = index[i]; a row of index -1 gives C[i], or zeroes. " +
	"The matrices are stacked [e,...] or values of their own, which may read fewer columns than x has (the first ones) and give fewer than the result has (zeroes follow), " +
	"as adapters of several ranks do. The result of a row depends on that row, its matrix, scale and bias alone, bit for bit where a device has a kernel: not on other rows, " +
	"nor on NaN in their matrices. A scale of 0 may leave its matrix unread"

var _ = define(RowsGemm, OpDef{Name: "RowsGemm", Doc: rowsGemmDoc,
	Infer:     inferRowsGemm,
	Gradient:  rowsGemmGradient,
	Decompose: decomposeRowsGemm,
	Reference: func(attr any, in, outs []*Host) {
		a, y := attr.(RowsGemmAttr), outs[0]
		for i, at := range in[1].Data {
			row := y.Data[i*a.Width:][:a.Width]
			if c := a.C(); c >= 0 {
				copy(row, in[c].Data[i*a.Width:])
			}
			e := int(at)
			if e < 0 {
				continue
			}
			if b := a.Bias(); b >= 0 {
				for j := range row {
					row[j] += in[b].Data[e*a.Width+j]
				}
			}
			w, reads, gives := a.host(in, 2, e)
			k, j := strides2(reads, gives, a.TB)
			x := in[0].Data[i*in[0].Shape[1]:]
			for o := range gives {
				sum := 0.0
				for l := range reads {
					sum += x[l] * w[l*k+o*j]
				}
				row[o] += a.hostScale(in, 2, e) * sum
			}
		}
	},
	Flops:   func(attr any, in, _ []Type, dims []int) int { return rowsFlops(attr.(RowsGemmAttr), in, 2, dims) },
	InPlace: func(attr any, _ int) int { return attr.(RowsGemmAttr).C() },
})

var _ = define(RowsGemmGrad, OpDef{Name: "RowsGemmGrad",
	Doc: "the gradients of RowsGemm for its matrices, from dy, x, index, the matrices, of which the types are read alone, and scale: scale[e]·Σ dy[i]ᵀ·x[i] over the rows of index e",
	Infer: func(attr any, in []Type) ([]Type, error) {
		a := attr.(RowsGemmAttr)
		if a.HasBias || a.HasC || len(in) < 3 {
			return nil, fmt.Errorf("expected dy, x, index, matrices and perhaps a scale")
		}
		outs, err := inferRowsGemm(a, in[1:])
		if err != nil {
			return nil, err
		}
		if !in[0].Equal(outs[0]) {
			return nil, fmt.Errorf("dy %v, expected %v", in[0], outs[0])
		}
		outs = outs[:0]
		for _, t := range in[3 : 3+a.weights()] {
			outs = append(outs, f32(t.Shape))
		}
		return outs, nil
	},
	Decompose: decomposeRowsGemmGrad,
	Reference: func(attr any, in, outs []*Host) {
		a := attr.(RowsGemmAttr)
		dy, x := in[0], in[1]
		for i, at := range in[2].Data {
			e := int(at)
			if e < 0 {
				continue
			}
			_, reads, gives := a.host(in, 3, e)
			k, j := strides2(reads, gives, a.TB)
			d := outs[0].Data
			if a.Tables > 0 {
				d = outs[e].Data
			} else {
				d = d[e*reads*gives:]
			}
			for o := range gives {
				for l := range reads {
					d[l*k+o*j] += a.hostScale(in, 3, e) * dy.Data[i*a.Width+o] * x.Data[i*x.Shape[1]+l]
				}
			}
		}
	},
	Flops: func(attr any, in, _ []Type, dims []int) int { return rowsFlops(attr.(RowsGemmAttr), in, 3, dims) },
})

// host returns matrix e and its numbers of input and output columns.
func (a RowsGemmAttr) host(in []*Host, first, e int) (w []float64, reads, gives int) {
	h := in[first]
	if a.Tables > 0 {
		h = in[first+e]
	}
	n := len(h.Shape)
	reads, gives = h.Shape[n-2], h.Shape[n-1]
	if a.TB {
		reads, gives = gives, reads
	}
	if w = h.Data; a.Tables == 0 {
		w = w[e*reads*gives:]
	}
	return w, reads, gives
}

func (a RowsGemmAttr) hostScale(in []*Host, first, e int) float64 {
	if s := a.Scale(first); s >= 0 {
		return in[s].Data[e]
	}
	return 1
}

// rowsFlops estimates the floating-point operations as if the rows were spread evenly over the matrices.
func rowsFlops(a RowsGemmAttr, in []Type, first int, dims []int) int {
	n, sum := a.Matrices(in, first), 0
	for e := range n {
		reads, gives := a.Size(in, first, e)
		sum += reads * gives
	}
	return 2 * in[0].Shape[0].Resolve(dims) * sum / n
}

func inferRowsGemm(attr any, in []Type) ([]Type, error) {
	a := attr.(RowsGemmAttr)
	want := 2 + a.weights() + boolIndex(a.HasScale) + boolIndex(a.HasBias) + boolIndex(a.HasC)
	if len(in) != want {
		return nil, arity(want, in)
	}
	x, index, rank := in[0], in[1], 2
	if x.Rank() != 2 || x.DType != tensor.F32 || x.Last().Var != 0 || !index.Equal(Type{tensor.I32, x.Shape[:1]}) {
		return nil, fmt.Errorf("x %v and index %v, expected f32 [n,k] with a fixed k and i32 [n]", x, index)
	}
	if a.Tables == 0 {
		rank = 3
	}
	for i, w := range in[2 : 2+a.weights()] {
		if w.Rank() != rank || !isWeight(w.DType) || rank == 3 && (w.Shape[0].Var != 0 || w.Shape[0].N < 1) ||
			w.DType.Quantized() && !(w.DType.Foreign() && w.Last().N%w.DType.BlockElements() == 0) && rank == 3 {
			return nil, fmt.Errorf("matrix %d is %v, expected rank %d of floats, or of whole blocks", i, w, rank)
		}
		reads, gives := opShape(w.Shape, a.TB)
		if reads.Var != 0 || gives.Var != 0 || reads.N < 1 || gives.N < 1 || reads.N > x.Last().N || gives.N > a.Width {
			return nil, fmt.Errorf("matrix %d %v reads %v columns and gives %v, expected 1 to %d and 1 to %d", i, w, reads, gives, x.Last().N, a.Width)
		}
	}
	e, out := Static(a.Matrices(in, 2)), f32(Shape{x.Shape[0], Static(a.Width)})
	if i := a.Scale(2); i >= 0 && !in[i].Equal(f32(Shape{e})) {
		return nil, fmt.Errorf("scale %v, expected %v", in[i], f32(Shape{e}))
	}
	if i := a.Bias(); i >= 0 && !in[i].Equal(f32(Shape{e, Static(a.Width)})) {
		return nil, fmt.Errorf("bias %v, expected %v", in[i], f32(Shape{e, Static(a.Width)}))
	}
	if i := a.C(); i >= 0 && !in[i].Equal(out) {
		return nil, fmt.Errorf("addend %v, expected %v", in[i], out)
	}
	return []Type{out}, nil
}

func rowsGemmGradient(b *Backward) {
	g, a, dy, index := b.G, b.Attr.(RowsGemmAttr), b.Dy(0), b.In(1)
	end := 2 + a.weights()
	if a.HasScale {
		end++
	}
	back := RowsGemmAttr{Tables: a.Tables, TB: a.TB, Width: a.Width, HasScale: a.HasScale}
	if s := a.Scale(2); s >= 0 && b.Needs(s) {
		g.Fail(fmt.Errorf("RowsGemm has no gradient for its scale"))
		return
	}
	if b.Needs(0) {
		dx := back
		dx.TB, dx.Width = !a.TB, b.InType(0).Last().N
		b.Acc(0, g.Apply(RowsGemm, dx, append([]Value{dy}, b.in[1:end]...)...))
	}
	for i := range a.weights() {
		if b.Needs(2 + i) {
			d := g.Apply(RowsGemmGrad, back, append([]Value{dy}, b.in[:end]...)...)
			for j := range a.weights() {
				if b.Needs(2 + j) {
					b.Acc(2+j, g.Out(d, j))
				}
			}
			break
		}
	}
	if i := a.Bias(); i >= 0 && b.Needs(i) {
		own := g.Where(g.rowsOf(index, GreaterEqual, 0), dy, g.Const(0, g.Type(dy)))
		b.Acc(i, g.ScatterAddRows(own, g.notNegative(index), b.InType(i).Shape[0]))
	}
	if i := a.C(); i >= 0 && b.Needs(i) {
		b.Acc(i, dy)
	}
}

// rowsOf compares index [n] with e and returns bool [n,1].
func (g *Graph) rowsOf(index Value, fn CompareFn, e int) Value {
	if index == 0 {
		return 0
	}
	is := g.Compare(fn, index, g.Const(float64(e), Type{tensor.I32, Shape{}}))
	return g.Reshape(is, Shape{g.Type(index).Shape[0], Static(1)})
}

// matrix returns matrix e of a RowsGemm as a value of two axes.
func (a RowsGemmAttr) matrix(g *Graph, in []Value, first, e int) Value {
	if a.Tables > 0 {
		return in[first+e]
	}
	w := g.Slice(in[first], 0, e, e+1)
	if w == 0 {
		return 0
	}
	return g.Reshape(w, g.Type(w).Shape[1:])
}

// decomposeRowsGemm multiplies all rows by every matrix and selects the result of each row. Gathering the scale by row
// detects an index without a matrix.
func decomposeRowsGemm(g *Graph, attr any, in []Value) []Value {
	a := attr.(RowsGemmAttr)
	types := g.types(in)
	n, e := types[0].Shape[0], a.Matrices(types, 2)
	out := f32(Shape{n, Static(a.Width)})
	y := g.Const(0, out)
	if i := a.C(); i >= 0 {
		y = in[i]
	}
	scale := g.Const(1, f32(ShapeOf(e)))
	if i := a.Scale(2); i >= 0 {
		scale = in[i]
	}
	scale = g.GatherRows(g.Reshape(scale, ShapeOf(e, 1)), g.notNegative(in[1]))
	sum := y
	for i := range e {
		reads, gives := a.Size(types, 2, i)
		p := g.Mul(g.MatMul(g.columns(in[0], reads), a.matrix(g, in, 2, i), false, a.TB), scale)
		if gives < a.Width {
			p = g.Concat(1, p, g.Const(0, f32(Shape{n, Static(a.Width - gives)})))
		}
		if j := a.Bias(); j >= 0 {
			p = g.Add(p, g.Slice(in[j], 0, i, i+1))
		}
		if a.HasC {
			p = g.Add(p, y)
		}
		sum = g.Where(g.rowsOf(in[1], Equal, i), p, sum)
	}
	return []Value{sum}
}

func decomposeRowsGemmGrad(g *Graph, attr any, in []Value) []Value {
	a := attr.(RowsGemmAttr)
	types := g.types(in)
	var all []Value
	for i := range a.Matrices(types, 3) {
		reads, gives := a.Size(types, 3, i)
		own := g.rowsOf(in[2], Equal, i)
		rows := func(x Value, cols int) Value {
			x = g.columns(x, cols)
			return g.Where(own, x, g.Const(0, g.Type(x)))
		}
		dy, x := rows(in[0], gives), rows(in[1], reads)
		if !a.TB {
			dy, x = x, dy
		}
		d := g.MatMul(dy, x, true, false)
		if s := a.Scale(3); s >= 0 {
			d = g.Mul(d, g.Slice(in[s], 0, i, i+1))
		}
		if a.Tables == 0 && d != 0 {
			d = g.Reshape(d, append(ShapeOf(1), g.Type(d).Shape...))
		}
		all = append(all, d)
	}
	if a.Tables == 0 {
		return []Value{g.Concat(0, all...)}
	}
	return all
}

// columns returns the first n columns of x.
func (g *Graph) columns(x Value, n int) Value {
	if x == 0 || g.Type(x).Last() == Static(n) {
		return x
	}
	return g.Slice(x, 1, 0, n)
}

func (g *Graph) types(vs []Value) []Type {
	ts := make([]Type, len(vs))
	for i, v := range vs {
		ts[i] = g.Type(v)
	}
	return ts
}

// RowsProduct holds the operands of a RowsGemm; Scale, Bias and C may be zero.
type RowsProduct struct {
	X, Index Value
	// Weights are separate matrices, or one stack of them if Stacked.
	Weights []Value
	Stacked bool
	TB      bool // the matrices are [out,in]
	Width   int  // columns of the result; 0: the width of the widest matrix

	Scale, Bias, C Value
}

// RowsGemm multiplies each row by the matrix that its index selects.
func (g *Graph) RowsGemm(p RowsProduct) Value {
	a := RowsGemmAttr{Tables: len(p.Weights), TB: p.TB, Width: p.Width, HasScale: p.Scale != 0, HasBias: p.Bias != 0, HasC: p.C != 0}
	if len(p.Weights) == 0 || p.Stacked && len(p.Weights) > 1 {
		return g.Fail(fmt.Errorf("RowsGemm: %d weights, expected matrices or one stack of them", len(p.Weights)))
	}
	if p.Stacked {
		a.Tables = 0
	}
	if a.Width == 0 {
		for _, w := range p.Weights {
			if g.Type(w).Rank() >= 2 {
				_, gives := opShape(g.Type(w).Shape, a.TB)
				a.Width = max(a.Width, gives.N)
			}
		}
	}
	in := append([]Value{p.X, p.Index}, p.Weights...)
	for _, v := range []Value{p.Scale, p.Bias, p.C} {
		if v != 0 {
			in = append(in, v)
		}
	}
	return g.Apply(RowsGemm, a, in...)
}
