package gpu

import (
	"fmt"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/internal/ir"
	"github.com/lorafuse/lorafuse/tensor"
)

// These launches run the kernels of kernels/cuda/gemm_thin.cu: products of the same A with weights in bfloat16 or in
// 8-bit floats, for the rows of a batch of decoding. A is rounded once for all of them, unless it is stored as bfloat16.

const (
	thinMost   = 64  // rows of a launch
	thinTile   = 64  // rows of the weights of a block
	thinStage  = 256 // elements along k of a stage
	thinStages = 2
	thinBlocks = 256 // a product of fewer blocks is computed in parts
	thinParts  = 8   // at most
	float8Unit = 256 // kernels multiply by 8-bit floats divided by this
	// The least sides of blocks that have a scale: the rows of a warp, and a quarter of a stage.
	thinBlockRows, thinBlockColumns = 16, 64
)

type thin struct {
	most      int        // rows
	pack, sum *Kernel    // pack is nil if A is bfloat16 in memory
	kernels   [3]*Kernel // for 16, 32 and 64 rows
}

// isThin reports whether the kernels compute t.
func (c *compiler) isThin(t *terms) bool {
	if c.target.ThinRows == 0 || c.target.Precision != backend.BF16 || len(t.list) != 1 || !t.dots() {
		return false
	}
	if !c.target.holds(thinShared(thinMost)) {
		return false
	}
	p := &t.list[0]
	if p.block != (ir.DequantizeAttr{}) && (p.block.Rows < thinBlockRows || p.block.Columns < thinBlockColumns) {
		return false
	}
	k := p.a.Type.Shape[1]
	a := p.a.Stored()
	return (a == tensor.F32 || a == tensor.BF16) && (p.b.Stored() == tensor.BF16 || p.b.Stored() == tensor.F8E4M3) && k.Var == 0 && k.Resolve(c.dims) > 0 && k.Resolve(c.dims)%thinStage == 0
}

// isFloat8 reports whether the weights of the first product are in 8-bit floats. Sums of a launch have weights of one
// kind.
func (t *terms) isFloat8() bool { return len(t.list) > 0 && t.list[0].b.Stored() == tensor.F8E4M3 }

// newThin returns the kernels for the sums, or nil if they do not compute all of them.
func newThin(c *compiler, sums []terms) (*thin, error) {
	_, most := sums[0].rows(c.dims)
	for i := range sums {
		if !c.isThin(&sums[i]) || most <= c.target.VectorRows {
			return nil, nil
		}
	}
	p := &thin{most: c.target.ThinRows}
	var err error
	if sums[0].list[0].a.Stored() == tensor.F32 {
		if p.pack, err = c.kernel("cast", "cast_f32_bf16", elementThreads); err != nil {
			return nil, err
		}
	}
	name := "gemm_thin"
	if sums[0].isFloat8() {
		name = "gemm_thin_f8"
	}
	if sums[0].block() != (ir.DequantizeAttr{}) {
		name = "gemm_thin_f8_blocks"
	}
	for i := range p.kernels {
		if p.kernels[i], err = c.sharing("gemm_thin", fmt.Sprintf("%s_%d", name, 16<<i), 128, thinShared(16<<i)); err != nil {
			return nil, err
		}
	}
	if p.sum, err = c.kernel("gemm_thin", "gemm_thin_sum", 256); err != nil {
		return nil, err
	}
	rows := min(most, p.most)
	k := sums[0].list[0].k(c.dims)
	bytes := p.packedBytes(rows, k)
	for i := range sums {
		_, n, _ := sums[i].sizes(c.dims)
		bytes += 4 * rows * n * partsOfThin(n, k)
	}
	c.reserve(bytes)
	return p, nil
}

// packedBytes returns the scratch memory for m rows of A in bfloat16.
func (p *thin) packedBytes(m, k int) int {
	if p.pack == nil {
		return 0
	}
	return packedSize(m * k)
}

// thinShared returns the shared memory of a block for m rows.
func thinShared(m int) int { return thinStages * m * (thinStage + 32) * 2 }

// partsOfThin returns the number of parts of the k axis. It does not depend on the rows, nor on other products of the
// launch.
func partsOfThin(n, k int) int {
	return max(1, min(thinBlocks/max(1, blocks(n, thinTile)), thinParts, k/(2*thinStage)))
}

// takes reports whether the operands are aligned as the kernels read them.
func (p *thin) takes(r *Run, sums []terms) bool {
	if p.pack == nil && !r.aligned(sums[0].list[0].a) {
		return false
	}
	for i := range sums {
		if !r.aligned(sums[i].list[0].b) {
			return false
		}
	}
	return true
}

func (p *thin) skip() {
	if p.pack != nil {
		p.pack.skip()
	}
	p.sum.skip()
	for _, k := range p.kernels {
		k.skip()
	}
}

// The parameters of products are numbered.
var thinW, thinPart = numbered("w"), numbered("parts")

func (p *thin) fill(r *Run, v *vector) {
	m, _, _ := v.sums[0].sizes(r.Dims)
	a := &v.sums[0].list[0]
	k := a.k(r.Dims)
	x, partial := r.at(a.a), r.Scratch+Pointer(p.packedBytes(m, k))
	if p.pack != nil {
		p.pack.elements(m*k).pointer("out", r.Scratch).pointer("x", x).long("n", m*k)
		x = r.Scratch
	}
	var w [vectorSums]Pointer
	var n, parts [vectorSums]int
	var scale [vectorSums]Pointer
	var alpha [vectorSums]float32
	total, columns := 0, 0
	for s := range v.sums {
		t := &v.sums[s]
		_, n[s], _ = t.sizes(r.Dims)
		w[s], parts[s], alpha[s] = r.at(t.list[0].b), partsOfThin(n[s], k), t.list[0].alpha
		if t.isFloat8() {
			alpha[s] *= float8Unit
		}
		if t.list[0].scaled {
			scale[s] = r.at(t.list[0].scale)
		}
		total += blocks(n[s], thinTile) * parts[s]
		if v.glu == nil || s == 0 {
			columns += n[s]
		}
	}
	main := p.kernels[vectorKernel(blocks(m, 16))]
	main.grid(total, 1, 1).pointer("partial", partial).pointer("x", x)
	for s := range w {
		main.pointer(thinW[s], w[s])
	}
	block := v.sums[0].block()
	var blockScale [vectorSums]Pointer
	if block != (ir.DequantizeAttr{}) {
		blockScale, scale = scale, blockScale // scale is of the rows
	}
	for s := range blockScale {
		main.pointer(productScale[s], blockScale[s])
	}
	main.int("m", m).int("k", k)
	v.outputs(r, p.sum.grid(blocks(m*columns, 256), 1, 1))
	p.sum.pointer("partial", partial).int("m", m)
	for _, k := range []*Kernel{main, p.sum} {
		for s := range n {
			k.int(vectorN[s], n[s])
		}
		for s := range parts {
			k.int(thinPart[s], parts[s])
		}
	}
	main.int("flags", blockFlags(block))
	for s := range alpha {
		p.sum.float(productAlpha[s], alpha[s])
	}
	for s := range scale {
		p.sum.pointer(productScale[s], scale[s])
	}
	p.sum.int("act", v.act()).int("stored", v.stored())
}
