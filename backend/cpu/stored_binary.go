package cpu

import (
	"github.com/lorafuse/lorafuse/internal/ir"
	"github.com/lorafuse/lorafuse/internal/vec"
	"github.com/lorafuse/lorafuse/tensor"
)

// storesBinary reports whether an operand or the result of fn may be stored narrowly: operands of equal size, or a
// multiplication by a broadcast operand, which is not stored narrowly.
func storesBinary(fn ir.BinaryFn, in []ir.Type, at ir.Place) bool {
	switch {
	case binaryVec[fn] == nil || in[0].DType != tensor.F32:
		return false
	case in[0].Shape.Equal(in[1].Shape):
		return in[0].Rank() > 0
	}
	large := largeOperand(in[0], in[1])
	small, full := in[1-large], in[large].Shape
	repeats := small.Rank() == 0 || small.Rank() == 1 && small.Last() == in[large].Last()
	if small.Rank() == len(full) && small.Last() == ir.Static(1) {
		repeats = full[:len(full)-1].Equal(small.Shape[:len(full)-1])
	}
	return fn == ir.Mul && repeats && (at.Out || at.Index == large)
}

// largeOperand returns the index of the operand that is not broadcast.
func largeOperand(a, b ir.Type) int {
	if b.Rank() > a.Rank() || b.Rank() == a.Rank() && a.Last() == ir.Static(1) && b.Last() != a.Last() {
		return 1
	}
	return 0
}

// storedBinary returns a floatBinary kernel with narrow operands or results, as storesBinary allows.
func storedBinary(r *run, l *ir.Launch, fn ir.BinaryFn) func() error {
	large := 0
	equal := l.In[0].Type.Shape.Equal(l.In[1].Type.Shape)
	if !equal {
		large = largeOperand(l.In[0].Type, l.In[1].Type)
	}
	f := binaryVec[fn]
	_, d := r.matrix(l.Out[0])
	r.reserveRoom(l, 3, max(d, storedElements))
	var x, y, dst values
	var kind repeat
	part := func(lo, hi int, m *wideScratch) {
		for n := 0; lo < hi; lo += n {
			n = m.reset(hi - lo)
			to := dst.out(lo, n, m)
			f(to, x.in(lo, n, m), y.in(lo, n, m))
			dst.store(lo, to)
		}
	}
	rows := func(lo, hi int, m *wideScratch) {
		for i := lo; i < hi; i++ {
			m.reset(d)
			to, from := dst.out(i*d, d, m), x.in(i*d, d, m)
			switch kind {
			case one:
				vec.Scale(to, y.f32[0], from)
			case perRow:
				vec.Scale(to, y.f32[i], from)
			case perCol:
				f(to, from, y.f32)
			}
			dst.store(i*d, to)
		}
	}
	var out []int
	return func() error {
		x, y, dst = r.values(l.In[large]), r.values(l.In[1-large]), r.values(l.Out[0])
		var n int
		n, d = r.matrix(l.Out[0])
		out = r.shape(out[:0], l.Out[0])
		if kind = r.layout(l.In[1-large], out).kind; kind == same {
			r.elementsIn(dst.n, part)
		} else {
			r.rowsIn(n, d, rows)
		}
		return nil
	}
}
