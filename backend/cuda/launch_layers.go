//go:build cuda && linux

package cuda

import (
	"github.com/lorafuse/lorafuse/internal/philox"
	"github.com/lorafuse/lorafuse/ir"
)

// The launches here are those of norm.cu, softmax.cu, rope.cu, glu.cu and
// dropout.cu in kernels/cuda.

// Rows of up to warpRow numbers are held in the registers of a warp, of which a
// block has rowWarps; longer ones are taken by a block.
const (
	warpRow  = 1024
	rowWarps = 8
)

// rowThreads is how many threads take a row of n numbers.
func rowThreads(n int) uint32 {
	if n <= 8192 {
		return 256
	}
	return 1024
}

// byRows is a pair of kernels, of which the length of the rows chooses one.
type byRows struct{ warp, block *kernel }

func (c *compiler) byRows(file, name string) (k byRows, err error) {
	if k.warp, err = c.kernel(file, name+"_warp_f32", 32*rowWarps); err != nil {
		return k, err
	}
	k.block, err = c.kernel(file, name+"_row_f32", 1024)
	return k, err
}

// begin sets the blocks for rows of n numbers. The caller adds what comes before
// the sizes.
func (b byRows) begin(rows, n int) *kernel {
	b.warp.skip()
	b.block.skip()
	if n <= warpRow {
		return b.warp.grid(blocks(rows, rowWarps), 1, 1)
	}
	b.block.Block[0] = rowThreads(n)
	return b.block.grid(rows, 1, 1)
}

// sizes adds the number of rows, where the kernel wants it, and their length.
func (b byRows) sizes(k *kernel, rows, n int) *kernel {
	if k == b.warp {
		k.long(rows)
	}
	return k.int(n)
}

func prepareRMSNorm(c *compiler, l *ir.Launch) (step, error) {
	name, eps, out := "rms_norm", l.Attr.(ir.NormAttr).Eps, l.Out[0]
	if l.Op == ir.RMSNormGrad {
		name = "rms_norm_grad"
	}
	by, err := c.byRows("norm", name)
	if err != nil {
		return nil, err
	}
	return func(r *run) {
		rows, d := r.matrix(out)
		k := by.begin(rows, d).pointer(r.at(out))
		for _, in := range l.In {
			k.pointer(r.at(in))
		}
		by.sizes(k, rows, d).float(eps)
	}, nil
}

func prepareSoftmax(c *compiler, l *ir.Launch) (step, error) {
	in, out := l.In[0], l.Out[0]
	by, err := c.byRows("softmax", "softmax")
	if err != nil {
		return nil, err
	}
	return func(r *run) {
		rows, n := r.matrix(out)
		by.sizes(by.begin(rows, n).pointer(r.at(out)).pointer(r.at(in)), rows, n)
	}, nil
}

func prepareRoPETable(c *compiler, l *ir.Launch) (step, error) {
	positions, frequencies, out, scale := l.In[0], l.In[1], l.Out[0], l.Attr.(ir.RoPETableAttr).Scale
	k, err := c.kernel("rope", "rope_table_f32", elementThreads)
	if err != nil {
		return nil, err
	}
	return func(r *run) {
		n, h := r.count(positions), r.count(frequencies)
		k.grid(blocks(n*h, elementThreads), 1, 1).pointer(r.at(out)).pointer(r.at(positions)).pointer(r.at(frequencies))
		k.int(n).int(h).float(scale)
	}, nil
}

// aligned tells whether values lie where 16 bytes can be read at once.
func (r *run) aligned(values ...ir.Ref) bool {
	for _, v := range values {
		if r.at(v)%16 != 0 {
			return false
		}
	}
	return true
}

func prepareRoPE(c *compiler, l *ir.Launch) (step, error) {
	a, x, table, out := l.Attr.(ir.RoPEAttr), l.In[0], l.In[1], l.Out[0]
	one, err := c.kernel("rope", "rope_f32", elementThreads)
	if err != nil {
		return nil, err
	}
	four, err := c.kernel("rope", "rope_v4_f32", elementThreads)
	if err != nil {
		return nil, err
	}
	h, sign := a.HeadDim/2, float32(1)
	if a.Inverse {
		sign = -1
	}
	return func(r *run) {
		one.skip()
		four.skip()
		k, pairs := one, r.count(out)/2
		if h%4 == 0 && r.aligned(x, table, out) {
			k, pairs = four, pairs/4
		}
		_, d := r.matrix(out)
		k.grid(blocks(pairs, elementThreads), 1, 1).pointer(r.at(out)).pointer(r.at(x)).pointer(r.at(table))
		k.long(pairs).int(d / a.HeadDim).int(h).float(sign)
	}, nil
}

func prepareGLU(c *compiler, l *ir.Launch) (step, error) {
	name := "glu_"
	if l.Op == ir.GLUGrad {
		name = "glu_grad_"
	}
	k, err := c.kernel("glu", name+l.Attr.(ir.GLUAttr).Act.String()+"_f32", elementThreads)
	if err != nil {
		return nil, err
	}
	return func(r *run) {
		n := r.count(l.Out[0])
		k.elements(n)
		for _, v := range l.Out {
			k.pointer(r.at(v))
		}
		for _, v := range l.In {
			k.pointer(r.at(v))
		}
		k.long(n)
	}, nil
}

func prepareDropout(c *compiler, l *ir.Launch) (step, error) {
	a, x, key, out := l.Attr.(ir.DropoutAttr), l.In[0], l.In[1], l.Out[0]
	k, err := c.kernel("dropout", "dropout_f32", elementThreads)
	if err != nil {
		return nil, err
	}
	threshold, scale := philox.Threshold(a.P), float32(1/(1-a.P))
	return func(r *run) {
		n := r.count(out)
		k.elements(n).pointer(r.at(out)).pointer(r.at(x)).pointer(r.at(key))
		k.long(n).int(int(a.Stream)).int(int(threshold)).float(scale)
	}, nil
}
