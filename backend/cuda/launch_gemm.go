//go:build cuda && linux

package cuda

import (
	"gorgonia.org/cu"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/ir"
	"github.com/lorafuse/lorafuse/tensor"
)

// The launches here are sums of products. Those of kernels/cuda/gemm_f32.cu are
// one launch for each product, of which those after the first add to what is
// there.

// gemmTile is the side of the tile that a block computes.
const gemmTile = 64

var (
	// The numbers by which the kernels know the type of A.
	firstFactors = map[tensor.DType]int{tensor.F32: 0, tensor.F16: 1, tensor.BF16: 2}
	// The types of B.
	secondFactors = map[tensor.DType]bool{tensor.F32: true, tensor.F16: true, tensor.BF16: true, tensor.Q8: true, tensor.NF4: true, tensor.FP4: true}
)

// product is how a sum of products is computed, one of several for a launch.
type product interface {
	fill(r *run)
	skip()
}

// prepareGemm takes the kernels of a sum of products: those of gemv.cu for few
// rows, and of gemm_mma.cu or, where operands must not be rounded, of gemm_f32.cu
// for others. How many rows there are shows when it runs.
func prepareGemm(c *compiler, l *ir.Launch) (step, error) {
	t := termsOf(l)
	var few, many product
	var err error
	if t.dots() {
		if few, err = newVector(c, t); err != nil {
			return nil, err
		}
	}
	if c.dev.precision == backend.BF16 && t.chained() {
		many, err = newMMA(c, t)
	} else {
		many, err = newExact(c, l)
	}
	if err != nil {
		return nil, err
	}
	return func(r *run) {
		with, without := many, few
		if m, _, _ := t.sizes(r.dims); few != nil && m <= vectorRows {
			with, without = few, many
		}
		if without != nil {
			without.skip()
		}
		with.fill(r)
	}, nil
}

// exact is products by gemm_f32.cu.
type exact struct {
	l       *ir.Launch
	kernels []*kernel
}

func newExact(c *compiler, l *ir.Launch) (product, error) {
	a := l.Attr.(ir.GemmAttr)
	e := &exact{l: l, kernels: make([]*kernel, a.N)}
	for p := range e.kernels {
		x, y := l.In[2*p].Type.DType, l.In[2*p+1].Type.DType
		if _, ok := firstFactors[x]; !ok || !secondFactors[y] {
			return nil, unsupported("a product of %v and %v", x, y)
		}
		var err error
		if e.kernels[p], err = c.kernel("gemm_f32", "gemm_f32_"+suffix(y), 256); err != nil {
			return nil, err
		}
	}
	return e, nil
}

func (e *exact) fill(r *run) {
	for p, k := range e.kernels {
		gemmProduct(r, e.l, e.l.Attr.(ir.GemmAttr), p, k)
	}
}

func (e *exact) skip() {
	for _, k := range e.kernels {
		k.skip()
	}
}

// gemmProduct sets the kernel of product p.
func gemmProduct(r *run, l *ir.Launch, a ir.GemmAttr, p int, kernel *kernel) {
	x, y, out, t := l.In[2*p], l.In[2*p+1], l.Out[0], a.P[p]
	rank := out.Type.Rank()
	m, n, k := r.axis(out, rank-2), r.axis(out, rank-1), r.axis(x, rank-1)
	if t.TA {
		k = r.axis(x, rank-2)
	}
	batch := 1
	if rank == 3 {
		batch = r.axis(out, 0)
	}
	var bias, addend cu.DevicePtr
	switch {
	case p > 0:
		addend = r.at(out)
	case a.HasC:
		addend = r.at(l.In[a.C()])
	}
	if p == 0 && a.HasBias {
		bias = r.at(l.In[a.Bias()])
	}
	kernel.grid(blocks(m, gemmTile), blocks(n, gemmTile), min(batch, maxGrid))
	kernel.pointer(r.at(out)).pointer(r.at(x)).pointer(r.at(y)).pointer(bias).pointer(addend)
	kernel.int(m).int(n).int(k).int(firstFactors[x.Type.DType]).int(flag(t.TA)).int(flag(t.TB))
	kernel.long(m * k).long(k * n).int(batch).float(t.Alpha)
}

func flag(b bool) int {
	if b {
		return 1
	}
	return 0
}
