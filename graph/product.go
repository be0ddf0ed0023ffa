package graph

import (
	"fmt"
	"slices"

	"github.com/lorafuse/lorafuse/internal/ir"
	"github.com/lorafuse/lorafuse/tensor"
)

// Products take operands of any rank. The graph only has products of matrices and of batches of matrices; leading axes
// become rows by a reshape, which costs nothing at run time.

// matMul computes t · u, or t · uᵀ if trans is set.
func (t Tensor) matMul(u Tensor, trans bool) Tensor {
	g, w := t.g, t.with(u)
	if t.v == 0 || w == 0 || g.ir.Type(t.v).Rank() == 0 || g.ir.Type(w).Rank() == 0 {
		return t.of(g.ir.MatMul(t.v, w, false, trans)) // reports the error
	}
	name := "matmul"
	if trans {
		name = "matmul transposed"
	}
	xs, ws := g.ir.Type(t.v).Shape, g.ir.Type(w).Shape
	if err := checkInner(name, xs, ws, trans); err != nil {
		return g.Fail(err)
	}
	// A vector is a row on the left and a column on the right; that axis is removed from the result.
	x, out := asMatrix(xs, false), slices.Clone(xs[:len(xs)-1])
	wm := asMatrix(ws, !trans)
	n := wm[len(wm)-1]
	if trans {
		n = wm[len(wm)-2]
	}
	if lead := wm[:len(wm)-2]; !allOnes(lead) || len(lead) > len(x)-2 {
		return t.batched(w, x, wm, trans, len(xs) == 1, len(ws) == 1)
	}
	rows, err := joined(x[:len(x)-1])
	if err != nil {
		return g.Fail(fmt.Errorf("%s: x %v: %w", name, xs, err))
	}
	y := g.ir.MatMul(g.ir.Reshape(t.v, ir.Shape{rows, x[len(x)-1]}), g.ir.Reshape(w, wm[len(wm)-2:]), false, trans)
	if len(ws) > 1 {
		out = append(out, n)
	}
	return t.of(g.ir.Reshape(y, out))
}

// batched computes the product of x and w if both have leading axes, which are broadcast. noRow and noColumn remove the
// axis that was added to a vector.
func (t Tensor) batched(w ir.Value, x, ws ir.Shape, trans, noRow, noColumn bool) Tensor {
	g := t.g
	lead, err := fit(x[:len(x)-2], ws[:len(ws)-2])
	if err != nil {
		return g.Fail(fmt.Errorf("matmul: %w: x %v · w %v; leading axes must be equal, or 1", err, x, ws))
	}
	batch, err := joined(lead)
	if err != nil {
		return g.Fail(fmt.Errorf("matmul: x %v · w %v: %w", x, ws, err))
	}
	flat := func(v ir.Value, s ir.Shape) ir.Value {
		last := s[len(s)-2:]
		whole := g.ir.Broadcast(g.ir.Reshape(v, s), slices.Concat(lead, last))
		return g.ir.Reshape(whole, slices.Concat(ir.Shape{batch}, last))
	}
	y := g.ir.MatMul(flat(t.v, x), flat(w, ws), false, trans)
	m, n := x[len(x)-2], ws[len(ws)-1]
	if trans {
		n = ws[len(ws)-2]
	}
	out := slices.Clone(lead)
	if !noRow {
		out = append(out, m)
	}
	if !noColumn {
		out = append(out, n)
	}
	return t.of(g.ir.Reshape(y, out))
}

// rows reshapes t to a matrix by joining all leading axes, and returns the leading axes too. If they cannot be joined,
// it fails the graph and returns 0.
func (t Tensor) rows(what string) (ir.Value, ir.Shape) {
	if t.v == 0 {
		return 0, nil
	}
	s := t.g.ir.Type(t.v).Shape
	if len(s) == 0 {
		return t.g.ir.Fail(fmt.Errorf("%s: x is a scalar, expected an axis of inputs at least", what)), nil
	}
	lead := s[:len(s)-1]
	rows, err := joined(lead)
	if err != nil {
		return t.g.ir.Fail(fmt.Errorf("%s: x %v: %w", what, s, err)), nil
	}
	return t.g.ir.Reshape(t.v, ir.Shape{rows, s[len(s)-1]}), lead
}

// back restores the leading axes of rows.
func (g *Graph) back(v ir.Value, lead ir.Shape) Tensor {
	if v == 0 {
		return g.Of(0)
	}
	return g.Of(g.ir.Reshape(v, append(slices.Clone(lead), g.ir.Type(v).Last())))
}

// weight returns the node of w, a weight [out, in] for t, or 0.
func (t Tensor) weight(what string, w Tensor) ir.Value {
	v := t.with(w)
	if v == 0 || t.v == 0 {
		return v
	}
	xs, ws := t.g.ir.Type(t.v).Shape, t.g.ir.Type(v).Shape
	if len(ws) != 2 {
		return t.g.ir.Fail(fmt.Errorf("%s: w %v, expected a matrix [out,in]", what, ws))
	}
	if len(xs) == 0 {
		return v // rows reports the error
	}
	if err := checkInner(what, xs, ws, true); err != nil {
		return t.g.ir.Fail(err)
	}
	return v
}

// linear computes x Wᵀ + bias.
func (t Tensor) linear(w, bias Tensor) Tensor {
	weight, b := t.weight("linear", w), t.with(bias)
	x, lead := t.rows("linear")
	return t.g.back(t.g.ir.Linear(x, weight, b), lead)
}

// lora computes x Wᵀ + bias + scale·h Bᵀ.
func (t Tensor) lora(w, bias, h, b Tensor, scale float64) Tensor {
	g, add := t.g, t.with(bias)
	if add != 0 {
		add = g.ir.Cast(add, tensor.F32)
	}
	weight := t.weight("lora", w)
	x, lead := t.rows("lora")
	var low, up ir.Value
	if t.with(h) != 0 {
		up = h.weight("lora", b)
		var other ir.Shape
		if low, other = h.rows("lora"); low != 0 && x != 0 && !lead.Equal(other) {
			g.ir.Fail(fmt.Errorf("lora: x %v and h %v differ in their leading axes; h is LoRADown of x", t.Type().Shape, h.Type().Shape))
		}
	}
	y := g.ir.Gemm([]ir.Product{{A: x, B: weight, TB: true, Alpha: 1}, {A: low, B: up, TB: true, Alpha: float32(scale)}}, add, 0)
	return g.back(y, lead)
}

// loraDown computes dropout(x) Aᵀ.
func (t Tensor) loraDown(a, key Tensor, d ir.DropoutAttr) Tensor {
	down, random := t.weight("lora down", a), t.with(key)
	x, lead := t.rows("lora down")
	return t.g.back(t.g.ir.LoRADown(x, down, random, d), lead)
}

// asMatrix adds an axis to the shape of a vector to make it a matrix.
func asMatrix(s ir.Shape, column bool) ir.Shape {
	switch {
	case len(s) != 1:
		return s
	case column:
		return ir.Shape{s[0], ir.Static(1)}
	}
	return ir.Shape{ir.Static(1), s[0]}
}

// joined returns the size of the axis that results from joining dims.
func joined(dims []ir.Dim) (ir.Dim, error) {
	all := ir.Static(1)
	for _, d := range dims {
		if all.Var != 0 && d.Var != 0 {
			return all, fmt.Errorf("two leading axes are bounded, and cannot be joined to rows; reshape to one before the product")
		}
		all.N *= d.N
		all.Var = max(all.Var, d.Var)
	}
	return all, nil
}

// fit returns the broadcast shape of a and b.
func fit(a, b ir.Shape) (ir.Shape, error) {
	if len(a) < len(b) {
		a, b = b, a
	}
	out := slices.Clone(a)
	for i, d := range b {
		switch at := len(a) - len(b) + i; {
		case out[at] == d || d == ir.Static(1):
		case out[at] == ir.Static(1):
			out[at] = d
		default:
			return nil, fmt.Errorf("leading axes %v and %v do not fit each other", a, b)
		}
	}
	return out, nil
}

func allOnes(s ir.Shape) bool {
	return !slices.ContainsFunc(s, func(d ir.Dim) bool { return d != ir.Static(1) })
}

// checkInner returns an error if inner sizes differ, with a hint which operand to transpose.
func checkInner(what string, x, w ir.Shape, trans bool) error {
	k, rows, columns := x[len(x)-1], w[len(w)-1], w[len(w)-1]
	if len(w) > 1 {
		rows = w[len(w)-2]
	}
	inner, mark := rows, ""
	if trans {
		inner, mark = columns, "ᵀ"
	}
	if k == inner {
		return nil
	}
	var advice string
	switch {
	case !trans && columns == k:
		advice = "use MatMulT, which reads w [out,in], or transpose w"
	case trans && rows == k && what == "matmul transposed":
		advice = "use MatMul, which reads w [in,out], or transpose w"
	case trans && rows == k:
		advice = "transpose w, which is read [out,in]"
	case len(x) > 1 && x[len(x)-2] == inner:
		advice = "transpose x"
	default:
		advice = fmt.Sprintf("x must end in %v, or w have inner size %v", inner, k)
	}
	return fmt.Errorf("%s: inner sizes %v and %v differ: x %v · w %v%s; %s", what, k, inner, x, w, mark, advice)
}
