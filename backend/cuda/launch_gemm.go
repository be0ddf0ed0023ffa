//go:build cuda && linux

package cuda

import (
	"gorgonia.org/cu"

	"github.com/lorafuse/lorafuse/ir"
	"github.com/lorafuse/lorafuse/tensor"
)

// The launches here are those of kernels/cuda/gemm_f32.cu: products in float32,
// one launch for each, of which those after the first add to what is there.

// gemmTile is the side of the tile that a block computes.
const gemmTile = 64

var (
	// The numbers by which the kernels know the type of A.
	firstFactors = map[tensor.DType]int{tensor.F32: 0, tensor.F16: 1, tensor.BF16: 2}
	// The types of B.
	secondFactors = map[tensor.DType]bool{tensor.F32: true, tensor.F16: true, tensor.BF16: true, tensor.Q8: true, tensor.NF4: true, tensor.FP4: true}
)

func prepareGemm(c *compiler, l *ir.Launch) (step, error) {
	a := l.Attr.(ir.GemmAttr)
	products := make([]*kernel, a.N)
	for p := range products {
		x, y := l.In[2*p].Type.DType, l.In[2*p+1].Type.DType
		if _, ok := firstFactors[x]; !ok || !secondFactors[y] {
			return nil, unsupported("a product of %v and %v", x, y)
		}
		var err error
		if products[p], err = c.kernel("gemm_f32", "gemm_f32_"+suffix(y), 256); err != nil {
			return nil, err
		}
	}
	return func(r *run) {
		for p, k := range products {
			gemmProduct(r, l, a, p, k)
		}
	}, nil
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
