package cpu

import (
	"github.com/lorafuse/lorafuse/backend/cpu/internal/gemm"
	"github.com/lorafuse/lorafuse/backend/cpu/internal/vec"
	"github.com/lorafuse/lorafuse/internal/philox"
	"github.com/lorafuse/lorafuse/ir"
)

func (r *run) mask(a ir.DropoutAttr, key ir.Ref) (philox.Mask, float32) {
	seed, step := r.key(key)
	return philox.NewMask(seed, step, a.Stream, a.P), float32(1 / (1 - a.P))
}

func dropoutKernel(r *run, l *ir.Launch) func() error {
	a := l.Attr.(ir.DropoutAttr)
	var x, dst []float32
	var mask philox.Mask
	var scale float32
	part := func(lo, hi int) { vec.Dropout(dst[lo:hi], x[lo:hi], mask, uint64(lo), scale) }
	return func() error {
		mask, scale = r.mask(a, l.In[1])
		x, dst = r.f32(l.In[0]), r.f32(l.Out[0])
		r.elements(len(dst), part)
		return nil
	}
}

// droppedRows is how many rows of an input lie in memory with dropout applied,
// at most.
const droppedRows = 256

// dropped prepares a pass over dropout(x) that calls f for stretches of its
// rows.
func (r *run) dropped(a ir.DropoutAttr, x, key ir.Ref, f func(lo, hi int, rows gemm.Matrix)) func() {
	n, d := r.matrix(x)
	r.reserve(min(n, droppedRows) * d)
	var src, tmp []float32
	var mask philox.Mask
	var scale float32
	at := 0 // element that tmp begins with
	part := func(i, j int) { vec.Dropout(tmp[i:j], src[at+i:at+j], mask, uint64(at+i), scale) }
	return func() {
		mask, scale = r.mask(a, key)
		n, d := r.matrix(x)
		src, tmp = r.f32(x), r.temp(min(n, droppedRows)*d)
		for lo := 0; lo < n; lo += droppedRows {
			hi := min(n, lo+droppedRows)
			at = lo * d
			r.elements((hi-lo)*d, part)
			f(lo, hi, gemm.Of(tmp, d))
		}
	}
}

func loraDownKernel(r *run, l *ir.Launch) func() error {
	out, rank := []float32(nil), l.Out[0].Type.Last().N
	n, d := r.matrix(l.In[0])
	c := gemm.Call{M: min(n, droppedRows), N: rank, LDC: rank, Pairs: []gemm.Pair{{B: r.form(l.In[1], true), K: d, Alpha: 1}}}
	c.Pairs[0].A.Stride = d
	r.reserveProduct(&c)
	pass := r.dropped(l.Attr.(ir.DropoutAttr), l.In[0], l.In[2], func(lo, hi int, x gemm.Matrix) {
		c.M, c.C = hi-lo, out[lo*rank:hi*rank]
		c.Pairs[0].A, c.Pairs[0].B = x, r.operand(l.In[1], true)
		r.dev.gemm.Run(&c)
	})
	return func() error {
		out = r.f32(l.Out[0])
		pass()
		return nil
	}
}

func loraDownGradKernel(r *run, l *ir.Launch) func() error {
	var dh, out []float32
	n, _ := r.matrix(l.In[1])
	rank, d := r.matrix(l.Out[0])
	c := gemm.Call{M: rank, N: d, LDC: d, Pairs: []gemm.Pair{{K: min(n, droppedRows), Alpha: 1}}}
	c.Pairs[0].A, c.Pairs[0].B = gemm.Matrix{Stride: rank, Trans: true}, gemm.Matrix{Stride: d}
	r.reserveProduct(&c)
	pass := r.dropped(l.Attr.(ir.DropoutAttr), l.In[1], l.In[2], func(lo, hi int, x gemm.Matrix) {
		c.C, c.Accumulate = out, lo > 0
		p := &c.Pairs[0]
		p.A, p.B, p.K = gemm.Of(dh[lo*rank:hi*rank], rank).T(), x, hi-lo
		r.dev.gemm.Run(&c)
	})
	return func() error {
		dh, out = r.f32(l.In[0]), r.f32(l.Out[0])
		pass()
		return nil
	}
}
