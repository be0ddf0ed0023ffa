package cpu

import (
	"fmt"
	"math"

	"github.com/lorafuse/lorafuse/backend/cpu/internal/vec"
	"github.com/lorafuse/lorafuse/ir"
	"github.com/lorafuse/lorafuse/tensor"
)

var unaryVec = map[ir.UnaryFn]vec.Unary{
	ir.Neg: vec.Neg, ir.Exp: vec.ExpOp, ir.Log: vec.Log, ir.Sqrt: vec.Sqrt, ir.Rsqrt: vec.Rsqrt, ir.Reciprocal: vec.Reciprocal,
	ir.Tanh: vec.Tanh, ir.Sigmoid: vec.Sigmoid, ir.Erf: vec.Erf, ir.Sin: vec.Sin, ir.Cos: vec.Cos,
}

func unaryKernel(r *run, l *ir.Launch) error {
	fn := l.Attr.(ir.UnaryAttr).Fn
	if l.In[0].Type.DType != tensor.F32 {
		return fmt.Errorf("%v of %v", fn, l.In[0].Type.DType)
	}
	x, dst := r.f32(l.In[0]), r.f32(l.Out[0])
	op, fast := unaryVec[fn]
	r.elements(len(dst), func(lo, hi int) {
		if fast {
			vec.Apply(op, dst[lo:hi], x[lo:hi])
			return
		}
		for i := lo; i < hi; i++ {
			dst[i] = float32(fn.Eval(float64(x[i])))
		}
	})
	return nil
}

// spread tells how an operand is repeated to the output's shape.
type spread uint8

const (
	same    spread = iota // as large as the output
	one                   // a single element
	perRow                // one element for each row of the output
	perCol                // one row for all rows
	general               // any other repetition
)

// layout describes an operand of an elementwise kernel.
type layout struct {
	kind    spread
	strides []int // over the output's axes, for general
}

func (r *run) layout(v ir.Ref, out []int) layout {
	in := r.shape(v)
	n, total := product(in), product(out)
	switch {
	case n == total:
		return layout{kind: same}
	case n == 1:
		return layout{kind: one}
	}
	last := out[len(out)-1]
	if n == last && in[len(in)-1] == last {
		return layout{kind: perCol}
	}
	if n*last == total && len(in) == len(out) && in[len(in)-1] == 1 {
		return layout{kind: perRow}
	}
	s := make([]int, len(out))
	for i, step := len(in)-1, 1; i >= 0; i-- {
		if in[i] != 1 {
			s[len(out)-len(in)+i] = step
		}
		step *= in[i]
	}
	return layout{general, s}
}

// index gives the operand's element for element i of the output.
func (y layout) index(i int, out []int) int {
	switch y.kind {
	case same:
		return i
	case one:
		return 0
	case perRow:
		return i / out[len(out)-1]
	case perCol:
		return i % out[len(out)-1]
	}
	j := 0
	for a := len(out) - 1; a >= 0; a-- {
		j += i % out[a] * y.strides[a]
		i /= out[a]
	}
	return j
}

func product(dims []int) int {
	n := 1
	for _, d := range dims {
		n *= d
	}
	return n
}

func binaryKernel(r *run, l *ir.Launch) error {
	fn, out := l.Attr.(ir.BinaryAttr).Fn, r.shape(l.Out[0])
	a, b := r.layout(l.In[0], out), r.layout(l.In[1], out)
	switch l.In[0].Type.DType {
	case tensor.F32:
		x, y, dst := r.f32(l.In[0]), r.f32(l.In[1]), r.f32(l.Out[0])
		if a.kind == same && r.fastBinary(fn, dst, x, y, b, out) {
			return nil
		}
		if b.kind == same && fn != ir.Sub && fn != ir.Div && r.fastBinary(fn, dst, y, x, a, out) {
			return nil
		}
		slowBinary(r, fn, dst, x, y, a, b, out)
	case tensor.I32:
		slowBinary(r, fn, r.i32(l.Out[0]), r.i32(l.In[0]), r.i32(l.In[1]), a, b, out)
	case tensor.U32:
		slowBinary(r, fn, r.u32(l.Out[0]), r.u32(l.In[0]), r.u32(l.In[1]), a, b, out)
	default:
		return fmt.Errorf("%v of %v", fn, l.In[0].Type.DType)
	}
	return nil
}

var binaryVec = map[ir.BinaryFn]func(dst, a, b []float32){ir.Add: vec.Add, ir.Sub: vec.Sub, ir.Mul: vec.Mul, ir.Div: vec.Div}

// fastBinary handles fn(x, y) for x as large as the output.
func (r *run) fastBinary(fn ir.BinaryFn, dst, x, y []float32, b layout, out []int) bool {
	f := binaryVec[fn]
	if f == nil || len(out) == 0 {
		return false
	}
	cols := out[len(out)-1]
	switch {
	case b.kind == same:
		r.elements(len(dst), func(lo, hi int) { f(dst[lo:hi], x[lo:hi], y[lo:hi]) })
	case b.kind == perCol:
		r.rows(len(dst)/cols, cols, func(lo, hi int) {
			for i := lo; i < hi; i++ {
				f(dst[i*cols:i*cols+cols], x[i*cols:i*cols+cols], y)
			}
		})
	case b.kind == one && fn == ir.Mul:
		c := y[0]
		r.elements(len(dst), func(lo, hi int) { vec.Scale(dst[lo:hi], c, x[lo:hi]) })
	case b.kind == perRow && fn == ir.Mul:
		r.rows(len(dst)/cols, cols, func(lo, hi int) {
			for i := lo; i < hi; i++ {
				vec.Scale(dst[i*cols:i*cols+cols], y[i], x[i*cols:i*cols+cols])
			}
		})
	default:
		return false
	}
	return true
}

// slowBinary computes in float64, whose rounding to the element type is that
// of the operation itself.
func slowBinary[T float32 | int32 | uint32](r *run, fn ir.BinaryFn, dst, x, y []T, a, b layout, out []int) {
	r.elements(len(dst), func(lo, hi int) {
		for i := lo; i < hi; i++ {
			dst[i] = T(fn.Eval(float64(x[a.index(i, out)]), float64(y[b.index(i, out)])))
		}
	})
}

func compareKernel(r *run, l *ir.Launch) error {
	fn, out, dst := l.Attr.(ir.CompareAttr).Fn, r.shape(l.Out[0]), r.bytes(l.Out[0])
	a, b := r.layout(l.In[0], out), r.layout(l.In[1], out)
	switch l.In[0].Type.DType {
	case tensor.F32:
		compare(r, fn, dst, r.f32(l.In[0]), r.f32(l.In[1]), a, b, out)
	case tensor.I32:
		compare(r, fn, dst, r.i32(l.In[0]), r.i32(l.In[1]), a, b, out)
	case tensor.U32:
		compare(r, fn, dst, r.u32(l.In[0]), r.u32(l.In[1]), a, b, out)
	default:
		return fmt.Errorf("%v of %v", fn, l.In[0].Type.DType)
	}
	return nil
}

func compare[T float32 | int32 | uint32](r *run, fn ir.CompareFn, dst []byte, x, y []T, a, b layout, out []int) {
	r.elements(len(dst), func(lo, hi int) {
		for i := lo; i < hi; i++ {
			dst[i] = 0
			if fn.Eval(float64(x[a.index(i, out)]), float64(y[b.index(i, out)])) {
				dst[i] = 1
			}
		}
	})
}

func whereKernel(r *run, l *ir.Launch) error {
	out := r.shape(l.Out[0])
	c, y := r.bytes(l.In[0]), r.layout(l.In[0], out)
	a, b := r.layout(l.In[1], out), r.layout(l.In[2], out)
	switch l.Out[0].Type.DType.Size() {
	case 4:
		choose(r, r.u32(l.Out[0]), c, r.u32(l.In[1]), r.u32(l.In[2]), y, a, b, out)
	case 1:
		choose(r, r.bytes(l.Out[0]), c, r.bytes(l.In[1]), r.bytes(l.In[2]), y, a, b, out)
	default:
		return fmt.Errorf("a choice of %v", l.Out[0].Type.DType)
	}
	return nil
}

func choose[T any](r *run, dst []T, c []byte, x, y []T, lc, la, lb layout, out []int) {
	r.elements(len(dst), func(lo, hi int) {
		for i := lo; i < hi; i++ {
			if c[lc.index(i, out)] != 0 {
				dst[i] = x[la.index(i, out)]
			} else {
				dst[i] = y[lb.index(i, out)]
			}
		}
	})
}

func sumSquaresKernel(r *run, l *ir.Launch) error {
	x := r.f32(l.In[0])
	parts := make([]float64, (len(x)+chunk-1)/chunk)
	r.dev.pool.Run(len(parts), func(i int) {
		parts[i] = float64(vec.SumSquares(x[i*chunk : min(len(x), i*chunk+chunk)]))
	})
	sum := 0.0
	for _, p := range parts {
		sum += p
	}
	r.f32(l.Out[0])[0] = float32(sum)
	return nil
}

func adamWKernel(r *run, l *ir.Launch) error {
	a, rates, scale := l.Attr.(ir.AdamWAttr), r.f32(l.In[4]), r.f32(l.In[5])[0]
	p, m, v, g := r.f32(l.Out[0]), r.f32(l.Out[1]), r.f32(l.Out[2]), r.f32(l.In[3])
	for i, dst := range [][]float32{p, m, v} {
		if src := r.f32(l.In[i]); len(dst) > 0 && &src[0] != &dst[0] {
			copy(dst, src)
		}
	}
	if math.IsNaN(float64(scale)) || math.IsInf(float64(scale), 0) {
		return nil
	}
	grads := r.temp(len(g))
	r.elements(len(p), func(lo, hi int) {
		vec.Scale(grads[lo:hi], scale, g[lo:hi])
		vec.AdamWRates(p[lo:hi], m[lo:hi], v[lo:hi], grads[lo:hi], a.Beta1, a.Beta2, a.Eps, rates[0], rates[1], rates[2])
	})
	return nil
}
