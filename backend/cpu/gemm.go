package cpu

import (
	"github.com/lorafuse/lorafuse/backend/cpu/internal/gemm"
	"github.com/lorafuse/lorafuse/backend/cpu/internal/vec"
	"github.com/lorafuse/lorafuse/internal/philox"
	"github.com/lorafuse/lorafuse/ir"
)

func gemmKernel(r *run, l *ir.Launch) error {
	a := l.Attr.(ir.GemmAttr)
	out, shape := r.f32(l.Out[0]), r.shape(l.Out[0])
	rank := len(shape)
	if len(out) == 0 {
		return nil
	}
	c := gemm.Call{M: shape[rank-2], N: shape[rank-1], C: out, LDC: shape[rank-1]}
	if i := a.C(); i >= 0 {
		if src := r.f32(l.In[i]); &src[0] != &out[0] {
			r.elements(len(out), func(lo, hi int) { copy(out[lo:hi], src[lo:hi]) })
		}
		c.Accumulate = true
	}
	if i := a.Bias(); i >= 0 {
		c.Bias = r.f32(l.In[i])
	}
	c.Pairs = make([]gemm.Pair, a.N)
	for p := range a.N {
		x, y, t := l.In[2*p], l.In[2*p+1], a.P[p]
		xs := r.shape(x)
		k := xs[rank-1]
		if t.TA {
			k = xs[rank-2]
		}
		c.Pairs[p] = gemm.Pair{A: r.operand(x, t.TA), B: r.operand(y, t.TB), K: k, Alpha: t.Alpha}
	}
	if rank == 2 {
		r.dev.gemm.Run(&c)
		return nil
	}
	r.batched(l, c, shape)
	return nil
}

// batched runs the product of every matrix of a batch.
func (r *run) batched(l *ir.Launch, c gemm.Call, shape []int) {
	x, y := r.bytes(l.In[0]), r.bytes(l.In[1])
	dx, dy := len(x)/shape[0], len(y)/shape[0]
	out, pair, bias := c.C, c.Pairs[0], c.Bias
	for b := range shape[0] {
		p := pair
		if dx > 0 {
			p.A.Data, p.B.Data = pointer(x[b*dx:]), pointer(y[b*dy:])
		}
		each := c
		each.C, each.Bias, each.Pairs = out[b*c.M*c.N:][:c.M*c.N], bias, []gemm.Pair{p}
		r.dev.gemm.Run(&each)
	}
}

func (r *run) mask(a ir.DropoutAttr, key ir.Ref) (philox.Mask, float32) {
	seed, step := r.key(key)
	return philox.NewMask(seed, step, a.Stream, a.P), float32(1 / (1 - a.P))
}

func dropoutKernel(r *run, l *ir.Launch) error {
	mask, scale := r.mask(l.Attr.(ir.DropoutAttr), l.In[1])
	x, dst := r.f32(l.In[0]), r.f32(l.Out[0])
	r.elements(len(dst), func(lo, hi int) { vec.Dropout(dst[lo:hi], x[lo:hi], mask, uint64(lo), scale) })
	return nil
}

// droppedRows is how many rows of an input lie in memory with dropout applied,
// at most.
const droppedRows = 256

// dropped calls f with dropout(x) for stretches of the rows of x.
func (r *run) dropped(x ir.Ref, mask philox.Mask, scale float32, f func(lo, hi int, rows gemm.Matrix)) {
	n, d := r.matrix(x)
	src := r.f32(x)
	tmp := r.temp(min(n, droppedRows) * d)
	for lo := 0; lo < n; lo += droppedRows {
		hi := min(n, lo+droppedRows)
		r.elements((hi-lo)*d, func(i, j int) {
			vec.Dropout(tmp[i:j], src[lo*d+i:lo*d+j], mask, uint64(lo*d+i), scale)
		})
		f(lo, hi, gemm.Of(tmp, d))
	}
}

func loraDownKernel(r *run, l *ir.Launch) error {
	mask, scale := r.mask(l.Attr.(ir.DropoutAttr), l.In[2])
	_, d := r.matrix(l.In[0])
	out := r.f32(l.Out[0])
	rank := l.Out[0].Type.Last().N
	r.dropped(l.In[0], mask, scale, func(lo, hi int, x gemm.Matrix) {
		r.dev.gemm.Run(&gemm.Call{M: hi - lo, N: rank, C: out[lo*rank : hi*rank], LDC: rank,
			Pairs: []gemm.Pair{{A: x, B: r.operand(l.In[1], true), K: d, Alpha: 1}}})
	})
	return nil
}

func loraDownGradKernel(r *run, l *ir.Launch) error {
	mask, scale := r.mask(l.Attr.(ir.DropoutAttr), l.In[2])
	dh := r.f32(l.In[0])
	rank, d := r.matrix(l.Out[0])
	out := r.f32(l.Out[0])
	r.dropped(l.In[1], mask, scale, func(lo, hi int, x gemm.Matrix) {
		r.dev.gemm.Run(&gemm.Call{M: rank, N: d, C: out, LDC: d, Accumulate: lo > 0,
			Pairs: []gemm.Pair{{A: gemm.Of(dh[lo*rank:hi*rank], rank).T(), B: x, K: hi - lo, Alpha: 1}}})
	})
	return nil
}
