package gpu

import (
	"fmt"
	"slices"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/internal/ir"
	"github.com/lorafuse/lorafuse/tensor"
)

// These launches run the kernels of kernels/cuda/gemm_bf16.cu, which compute sums of products of many rows from
// operands that are bfloat16 in memory. Operands of other types are first converted into the scratch memory.

const (
	bulkRows = 128 // of a tile
	// Columns of the two tiles.
	bulkWide, bulkNarrow = 256, 128
	bulkStep             = 8 // rows of operands are multiples of this
	// Products of a short k axis are bound by writing the output.
	bulkLeast = 128
	bulkLow   = 64 // the most elements of the k axes of low products together, one stage
	packMost  = 4  // operands that a launch of gemm_pack converts
)

// bulk is a sum of products by gemm_bf16.cu, or by gemm_mma.cu if there are too few tiles.
type bulk struct {
	t            terms
	low          []bool // products of two f32 operands, as adapters have them, that the kernel rounds itself
	packs        []*Kernel
	wide, narrow *Kernel // of tiles of 256 and of 128 columns; wide is nil if its shared memory is too large
	gated        *gated  // the GLU or GLUGrad that takes the product, or nil
	few          *mma
	enough       int // tiles of 128 by 256
}

// bulks reports whether gemm_bf16.cu has a kernel for a sum of products on the target.
func (t *terms) bulks(target *Target) bool {
	if target.LargeTiles == 0 || target.Precision != backend.BF16 || t.out.Type.Rank() != 2 || len(t.list) == 0 {
		return false
	}
	for i := range t.list {
		if t.list[i].ta || t.list[i].tb != t.list[0].tb {
			return false
		}
	}
	return target.holds(bulkBytes(bulkNarrow))
}

// bulkBytes returns the shared memory for tiles with the given number of columns: three stages of 64 of the k axis.
func bulkBytes(columns int) int { return 3 * (bulkRows + columns) * 64 * 2 }

// bulkLayout returns the name of a layout; nt reports whether rows of B run along k.
func bulkLayout(nt bool) string {
	if nt {
		return "nt"
	}
	return "nn"
}

// bulkKernel adds the kernel for a layout and tiles with the given number of columns.
func (c *compiler) bulkKernel(layout string, columns int) (*Kernel, error) {
	return c.sharing("gemm_bf16", fmt.Sprintf("gemm_bf16_%s_%d", layout, columns), columns, bulkBytes(columns)) // a thread for each column
}

// bulkTiles sets the grid and the first arguments of a kernel of bulkKernel. stored is the result of terms.stored.
func (k *Kernel) bulkTiles(m, n, columns, stored int, out, bias, addend Pointer) *Kernel {
	k.bulkGrid(m, n, columns).pointer("out", out).pointer("bias", bias).pointer("addend", addend)
	return k.bulkSizes(m, n, columns, stored)
}

// bulkGrid sets the grid of a kernel of bulkKernel.
func (k *Kernel) bulkGrid(m, n, columns int) *Kernel {
	return k.grid(blocks(m, bulkRows)*blocks(n, columns), 1, 1)
}

// bulkSizes adds the sizes of a kernel of bulkKernel, which follow the addresses.
func (k *Kernel) bulkSizes(m, n, columns, stored int) *Kernel {
	return k.int("m", m).int("n", n).int("tiles_m", blocks(m, bulkRows)).int("tiles_n", blocks(n, columns)).int("stored", stored)
}

func newBulk(c *compiler, t terms) (product, error) {
	p := &bulk{t: t, low: lowProducts(t.list), enough: c.target.WideTiles}
	var err error
	bytes, packed := p.packedBytes(c.dims)
	for range blocks(packed, packMost) {
		k, err := c.kernel("gemm_bf16", "gemm_pack", 256)
		if err != nil {
			return nil, err
		}
		p.packs = append(p.packs, k)
	}
	c.reserve(bytes)
	if p.enough > 0 && c.target.holds(bulkBytes(bulkWide)) {
		if p.wide, err = c.bulkKernel(bulkLayout(t.list[0].tb), bulkWide); err != nil {
			return nil, err
		}
	}
	if p.narrow, err = c.bulkKernel(bulkLayout(t.list[0].tb), bulkNarrow); err != nil {
		return nil, err
	}
	if p.gated, err = newGated(c, p); err != nil {
		return nil, err
	}
	p.few, err = newMMA(c, t)
	return p, err
}

// lowProducts selects products of short f32 operands, up to bulkLow elements along k. At least one product is none.
func lowProducts(list []term) []bool {
	low, size := make([]bool, len(list)), 0
	for i := range list {
		p := &list[i]
		k := p.a.Type.Shape[1]
		if k.Var != 0 || k.N == 0 || k.N%bulkStep != 0 || size+k.N > bulkLow || p.a.Stored() != tensor.F32 || p.b.Stored() != tensor.F32 {
			continue
		}
		low[i] = true
		size += k.N
	}
	if !slices.Contains(low, false) {
		clear(low)
	}
	return low
}

// packedBytes returns the scratch memory for converted operands, and how many there are.
func (p *bulk) packedBytes(dims []int) (bytes, count int) {
	m, n, _ := p.t.sizes(dims)
	for i := range p.t.list {
		e := &p.t.list[i]
		if p.low[i] {
			continue
		}
		if e.a.Stored() != tensor.BF16 {
			bytes, count = bytes+packedSize(m*e.k(dims)), count+1
		}
		if e.b.Stored() != tensor.BF16 {
			bytes, count = bytes+packedSize(n*e.k(dims)), count+1
		}
	}
	return bytes, count
}

// packedSize returns the bytes of a converted operand, rounded up so that the next one is aligned.
func packedSize(elements int) int { return scratchBytes(2 * elements) }

// fits reports whether the kernels can run with the sizes and addresses of a run, and have enough tiles.
func (p *bulk) fits(r *Run) bool {
	m, n, _ := p.t.sizes(r.Dims)
	if n%bulkStep != 0 || m <= smallTile || n <= smallTile || blocks(m, bulkRows)*blocks(n, bulkNarrow) < p.few.enough {
		return false
	}
	all := 0
	for i := range p.t.list {
		e := &p.t.list[i]
		size := e.k(r.Dims)
		if size%bulkStep != 0 || !p.inPlace(r, i, e.a) || !p.inPlace(r, i, e.b) {
			return false
		}
		all += size
	}
	return all >= bulkLeast
}

// inPlace reports whether an operand of product i is aligned or will be converted.
func (p *bulk) inPlace(r *Run, i int, v ir.Ref) bool {
	return !p.low[i] && v.Stored() != tensor.BF16 || r.aligned(v)
}

func (p *bulk) skip() {
	for _, k := range p.packs {
		k.skip()
	}
	if p.wide != nil {
		p.wide.skip()
	}
	p.narrow.skip()
	if p.gated != nil {
		p.gated.skip()
	}
	p.few.skip()
}

func (p *bulk) fill(r *Run) {
	p.skip()
	if !p.fits(r) {
		p.few.fill(r)
		return
	}
	m, n, _ := p.t.sizes(r.Dims)
	k, columns := p.narrow, bulkNarrow
	if p.wide != nil && blocks(m, bulkRows)*blocks(n, bulkWide) >= p.enough {
		k, columns = p.wide, bulkWide
	}
	if p.gated != nil && p.gated.takes(r) {
		k = p.gated.begin(r, m, n, columns)
	} else {
		bias, addend := p.t.edges(r)
		k.bulkTiles(m, n, columns, p.t.stored(), r.at(p.t.out), bias, addend).pointer("rows", 0).int("first", 0)
	}
	low, at := 0, 0
	for _, is := range p.low {
		low += bit(is)
	}
	k.int("low", low).int("count", p.t.count(r)).long("step_a", 0).long("step_b", 0)
	for i := range p.t.list {
		if e := &p.t.list[i]; p.low[i] {
			k.product(at, r.at(e.a), r.at(e.b), e.k(r.Dims), 0, e.alpha)
			at++
		}
	}
	pack := packer{kernels: p.packs, to: r.Scratch}
	for i := range p.t.list {
		e := &p.t.list[i]
		if size := e.k(r.Dims); size > 0 && !p.low[i] {
			row, scale := n, Pointer(0)
			if e.tb {
				row = size
			}
			if e.scaled {
				scale = r.at(e.scale)
			}
			a := pack.add(packing{x: r.at(e.a), size: m * size}, e.a.Stored())
			b := pack.add(packing{x: r.at(e.b), size: n * size, flags: blockFlags(e.block), scale: scale, row: row}, e.b.Stored())
			k.product(at, a, b, size, 0, e.alpha)
			at++
		}
	}
	k.products(at)
	pack.end()
}

// packer fills in launches of gemm_pack.
type packer struct {
	kernels []*Kernel
	to      Pointer // where the next operand is converted to
	list    [packMost]packing
	count   int
}

// packing describes the conversion of an operand.
type packing struct {
	out, x      Pointer
	size, flags int
	scale       Pointer // of its rows or blocks, or 0
	row         int     // the length of a row
}

// add converts an operand of type d, unless it is bfloat16, and returns the address of its bfloat16 elements.
func (p *packer) add(e packing, d tensor.DType) Pointer {
	if d == tensor.BF16 {
		return e.x
	}
	if p.count == packMost {
		p.end()
	}
	e.out = p.to
	e.flags |= operandFlags(e.x, d, e.size, false)
	p.list[p.count] = e
	p.count++
	p.to += Pointer(packedSize(e.size))
	return e.out
}

// The parameters of operands are numbered.
var packOut, packX, packSize, packFlags, packRow = numbered("out"), numbered("x"), numbered("size"), numbered("flags"), numbered("row")

// end fills in the launch of the operands since the last one.
func (p *packer) end() {
	if p.count == 0 {
		return
	}
	k, most := p.kernels[0], 0
	for _, e := range p.list[:p.count] {
		most = max(most, e.size)
	}
	k.grid(blocks(most, 256*bulkStep), p.count, 1)
	for i := range p.list {
		e := packing{}
		if i < p.count {
			e = p.list[i]
		}
		k.pointer(packOut[i], e.out).pointer(packX[i], e.x).long(packSize[i], e.size).int(packFlags[i], e.flags).pointer(productScale[i], e.scale).int(packRow[i], e.row)
	}
	p.kernels, p.count = p.kernels[1:], 0
}
