package cpu

import (
	"math"
	"slices"

	"github.com/lorafuse/lorafuse/internal/ir"
	"github.com/lorafuse/lorafuse/internal/vec"
	"github.com/lorafuse/lorafuse/tensor"
)

var unaryVec = map[ir.UnaryFn]vec.Unary{
	ir.Neg: vec.Neg, ir.Exp: vec.ExpOp, ir.Log: vec.Log, ir.Sqrt: vec.Sqrt, ir.Rsqrt: vec.Rsqrt, ir.Reciprocal: vec.Reciprocal,
	ir.Tanh: vec.Tanh, ir.Sigmoid: vec.Sigmoid, ir.Erf: vec.Erf, ir.Sin: vec.Sin, ir.Cos: vec.Cos,
}

func unaryKernel(r *run, l *ir.Launch) func() error {
	fn := l.Attr.(ir.UnaryAttr).Fn
	if l.In[0].Type.DType != tensor.F32 {
		return never("%v of %v", fn, l.In[0].Type.DType)
	}
	var x, dst values
	op, fast := unaryVec[fn]
	r.reserveRoom(l, 2, storedElements)
	part := func(lo, hi int, m *wideScratch) {
		for n := 0; lo < hi; lo += n {
			n = m.reset(hi - lo)
			y, x := dst.out(lo, n, m), x.in(lo, n, m)
			if fast {
				vec.Apply(op, y, x)
			} else {
				for i, v := range x {
					y[i] = float32(fn.Eval(float64(v)))
				}
			}
			dst.store(lo, y)
		}
	}
	return func() error {
		x, dst = r.values(l.In[0]), r.values(l.Out[0])
		r.elementsIn(dst.n, part)
		return nil
	}
}

// repeat is the way an operand is broadcast to the output's shape.
type repeat uint8

const (
	same    repeat = iota // as large as the output
	one                   // a single element
	perRow                // one element for each row of the output
	perCol                // one row for all rows
	general               // any other repetition
)

// layout describes an operand of an elementwise kernel.
type layout struct {
	kind    repeat
	strides [ir.MaxRank]int // over the output's axes, for general
	// group, if positive, is the number of consecutive output rows per row of a general operand: one vector per
	// sample, used by all of its tokens.
	group int
}

func (r *run) layout(v ir.Ref, out []int) layout {
	var axes [ir.MaxRank]int
	in := r.shape(axes[:0], v)
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
	y := layout{kind: general}
	for i, step := len(in)-1, 1; i >= 0; i-- {
		if in[i] != 1 {
			y.strides[len(out)-len(in)+i] = step
		}
		step *= in[i]
	}
	y.group = group(in, out)
	return y
}

// group returns the number of consecutive output rows that share a row of the operand, or 0 if rows repeat in another
// order.
func group(in, out []int) int {
	last := len(out) - 1
	if len(in) != len(out) || in[last] != out[last] {
		return 0
	}
	n, i := 1, last-1
	for ; i >= 0 && in[i] == 1; i-- {
		n *= out[i]
	}
	if !slices.Equal(in[:max(0, i+1)], out[:max(0, i+1)]) {
		return 0
	}
	return n
}

// index returns the index of the operand's element for element i of the output.
func (y *layout) index(i int, out []int) int {
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

// number is an element type that is computed with.
type number interface{ float32 | int32 | uint32 }

// pair is the two operands of an elementwise kernel.
type pair[T number] struct {
	x, y, dst []T
	a, b      layout
	out       []int // shape of the output
}

// set loads the operands of a run.
func (p *pair[T]) set(r *run, l *ir.Launch, get func(ir.Ref) []T) {
	p.out = r.shape(p.out[:0], l.Out[0])
	p.a, p.b = r.layout(l.In[0], p.out), r.layout(l.In[1], p.out)
	p.x, p.y = get(l.In[0]), get(l.In[1])
}

func binaryKernel(r *run, l *ir.Launch) func() error {
	fn := l.Attr.(ir.BinaryAttr).Fn
	switch l.In[0].Type.DType {
	case tensor.F32:
		return floatBinary(r, l, fn)
	case tensor.I32:
		return slowBinary(r, l, fn, r.i32)
	case tensor.U32:
		return slowBinary(r, l, fn, r.u32)
	}
	return never("%v of %v", fn, l.In[0].Type.DType)
}

var binaryVec = map[ir.BinaryFn]func(dst, a, b []float32){ir.Add: vec.Add, ir.Sub: vec.Sub, ir.Mul: vec.Mul, ir.Div: vec.Div}

// floatBinary returns a kernel that uses vector code if the layouts of a run allow it.
func floatBinary(r *run, l *ir.Launch, fn ir.BinaryFn) func() error {
	if l.In[0].Store != tensor.Invalid || l.In[1].Store != tensor.Invalid || l.Out[0].Store != tensor.Invalid {
		return storedBinary(r, l, fn)
	}
	p := &pair[float32]{}
	fast, slow := fastBinary(r, p, fn), p.each(fn)
	commutes := fn != ir.Sub && fn != ir.Div
	return func() error {
		p.set(r, l, r.f32)
		p.dst = r.f32(l.Out[0])
		if p.a.kind == same && fast() {
			return nil
		}
		if p.b.kind == same && commutes {
			p.swap()
			if fast() {
				return nil
			}
			p.swap()
		}
		r.elements(len(p.dst), slow)
		return nil
	}
}

func (p *pair[T]) swap() { p.x, p.y, p.a, p.b = p.y, p.x, p.b, p.a }

// fastBinary prepares fn(x, y) for x as large as the output. The returned function reports whether it computed the
// result.
func fastBinary(r *run, p *pair[float32], fn ir.BinaryFn) func() bool {
	f := binaryVec[fn]
	if f == nil {
		return func() bool { return false }
	}
	cols := 0
	row := func(i int) (dst, x []float32) { return p.dst[i*cols : i*cols+cols], p.x[i*cols : i*cols+cols] }
	equal := func(lo, hi int) { f(p.dst[lo:hi], p.x[lo:hi], p.y[lo:hi]) }
	byColumn := func(lo, hi int) {
		for i := lo; i < hi; i++ {
			dst, x := row(i)
			f(dst, x, p.y)
		}
	}
	byGroup := func(lo, hi int) {
		for i := lo; i < hi; i++ {
			dst, x := row(i)
			at := i / p.b.group * cols
			f(dst, x, p.y[at:at+cols])
		}
	}
	scaled := func(lo, hi int) { vec.Scale(p.dst[lo:hi], p.y[0], p.x[lo:hi]) }
	byRow := func(lo, hi int) {
		for i := lo; i < hi; i++ {
			dst, x := row(i)
			vec.Scale(dst, p.y[i], x)
		}
	}
	return func() bool {
		if len(p.out) == 0 {
			return false
		}
		cols = p.out[len(p.out)-1]
		switch kind := p.b.kind; {
		case kind == same:
			r.elements(len(p.dst), equal)
		case kind == perCol:
			r.rows(len(p.dst)/cols, cols, byColumn)
		case p.b.group > 0:
			r.rows(len(p.dst)/cols, cols, byGroup)
		case kind == one && fn == ir.Mul:
			r.elements(len(p.dst), scaled)
		case kind == perRow && fn == ir.Mul:
			r.rows(len(p.dst)/cols, cols, byRow)
		default:
			return false
		}
		return true
	}
}

// each computes in float64, whose rounding to the element type is that of the
// operation itself.
func (p *pair[T]) each(fn ir.BinaryFn) func(lo, hi int) {
	return func(lo, hi int) {
		for i := lo; i < hi; i++ {
			p.dst[i] = T(fn.Eval(float64(p.x[p.a.index(i, p.out)]), float64(p.y[p.b.index(i, p.out)])))
		}
	}
}

func slowBinary[T number](r *run, l *ir.Launch, fn ir.BinaryFn, get func(ir.Ref) []T) func() error {
	p := &pair[T]{}
	part := p.each(fn)
	return func() error {
		p.set(r, l, get)
		p.dst = get(l.Out[0])
		r.elements(len(p.dst), part)
		return nil
	}
}

func compareKernel(r *run, l *ir.Launch) func() error {
	fn := l.Attr.(ir.CompareAttr).Fn
	switch l.In[0].Type.DType {
	case tensor.F32:
		return compare(r, l, fn, r.f32)
	case tensor.I32:
		return compare(r, l, fn, r.i32)
	case tensor.U32:
		return compare(r, l, fn, r.u32)
	}
	return never("%v of %v", fn, l.In[0].Type.DType)
}

func compare[T number](r *run, l *ir.Launch, fn ir.CompareFn, get func(ir.Ref) []T) func() error {
	p := &pair[T]{}
	var dst []byte
	part := func(lo, hi int) {
		for i := lo; i < hi; i++ {
			dst[i] = 0
			if fn.Eval(float64(p.x[p.a.index(i, p.out)]), float64(p.y[p.b.index(i, p.out)])) {
				dst[i] = 1
			}
		}
	}
	return func() error {
		p.set(r, l, get)
		dst = r.bytes(l.Out[0])
		r.elements(len(dst), part)
		return nil
	}
}

func whereKernel(r *run, l *ir.Launch) func() error {
	switch l.Out[0].Type.DType.Size() {
	case 4:
		return choose(r, l, r.u32)
	case 1:
		return choose(r, l, r.bytes)
	}
	return never("a choice of %v", l.Out[0].Type.DType)
}

func choose[T any](r *run, l *ir.Launch, get func(ir.Ref) []T) func() error {
	var c []byte
	var x, y, dst []T
	var layouts [3]layout
	var out []int
	part := func(lo, hi int) {
		for i := lo; i < hi; i++ {
			if c[layouts[0].index(i, out)] != 0 {
				dst[i] = x[layouts[1].index(i, out)]
			} else {
				dst[i] = y[layouts[2].index(i, out)]
			}
		}
	}
	return func() error {
		out = r.shape(out[:0], l.Out[0])
		for i := range layouts {
			layouts[i] = r.layout(l.In[i], out)
		}
		c, x, y, dst = r.bytes(l.In[0]), get(l.In[1]), get(l.In[2]), get(l.Out[0])
		r.elements(len(dst), part)
		return nil
	}
}

func sumSquaresKernel(r *run, l *ir.Launch) func() error {
	var x []float32
	parts := make([]float64, (l.In[0].Type.Shape.Elements(r.dims)+chunk-1)/chunk)
	part := func(i int) {
		parts[i] = float64(vec.SumSquares(x[i*chunk : min(len(x), i*chunk+chunk)]))
	}
	return func() error {
		x = r.f32(l.In[0])
		n := (len(x) + chunk - 1) / chunk
		r.dev.pool.Run(n, part)
		sum := 0.0
		for _, p := range parts[:n] {
			sum += p
		}
		r.f32(l.Out[0])[0] = float32(sum)
		return nil
	}
}

func adamWKernel(r *run, l *ir.Launch) func() error {
	a := l.Attr.(ir.AdamWAttr)
	r.reserve(l.In[3].Type.Shape.Elements(r.dims))
	var p, m, v, g, grads, rates []float32
	var scale float32
	part := func(lo, hi int) {
		vec.Scale(grads[lo:hi], scale, g[lo:hi])
		vec.AdamWRates(p[lo:hi], m[lo:hi], v[lo:hi], grads[lo:hi], a.Beta1, a.Beta2, a.Eps, rates[0], rates[1], rates[2])
	}
	return func() error {
		rates, scale = r.f32(l.In[4]), r.f32(l.In[5])[0]
		p, m, v, g = r.f32(l.Out[0]), r.f32(l.Out[1]), r.f32(l.Out[2]), r.f32(l.In[3])
		for i, dst := range [...][]float32{p, m, v} {
			if src := r.f32(l.In[i]); len(dst) > 0 && &src[0] != &dst[0] {
				copy(dst, src)
			}
		}
		if math.IsNaN(float64(scale)) || math.IsInf(float64(scale), 0) {
			return nil
		}
		grads = r.temp(len(g))
		r.elements(len(p), part)
		return nil
	}
}
