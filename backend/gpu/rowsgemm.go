package gpu

import (
	"fmt"
	"slices"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/internal/ir"
)

// These launches run the kernels of kernels/cuda/rows_gemm.cu and kernels/shared/rows_gemm_f32.cu: products that select
// their matrix by row, and the gradients of the matrices.

const (
	rowsTables = 16      // matrices of a launch
	rowsCols   = 16      // columns of a warp
	rowsWarps  = 8       // of a block
	rowsScan   = 256     // the most rows that blocks group themselves
	rowsWide   = 1 << 62 // flag of a matrix
)

// Flags of a launch.
const (
	rowsDeep     = 1 << iota // warps share the k axis, instead of the columns
	rowsAlignedX             // rows of x are aligned to 16 bytes
	rowsBF16X                // x is bfloat16
	rowsNarrow               // the result is bfloat16
	rowsAddend               // the addend is bfloat16
)

// Flags of the kernels of gradients, whose products are pᵀ q.
const (
	gradAlignedQ = 1 << iota // rows of q are aligned to 16 bytes
	gradBF16P                // p is bfloat16
	gradBF16Q                // q is bfloat16
)

// takesRows reports whether the kernels support the matrix types of a RowsGemm.
func takesRows(attr any, in []ir.Type) bool {
	for _, w := range in[2 : 2+max(1, attr.(ir.RowsGemmAttr).Tables)] {
		if _, ok := firstFactors[w.DType]; !ok {
			return false
		}
	}
	return true
}

// storesRows reports whether the kernels read or write an operand as bfloat16: x, the result, and the addend.
func storesRows(attr any, _ []ir.Type, at ir.Place) bool {
	a := attr.(ir.RowsGemmAttr)
	return at.Out || at.Index == 0 || a.HasC && at.Index == a.C()
}

// storesRowsGrad reports whether the kernels read an operand as bfloat16: x and dy.
func storesRowsGrad(_ any, _ []ir.Type, at ir.Place) bool { return !at.Out && at.Index < 2 }

// rowOrder is the order of rows by matrix that rows_order computes for all launches that read the same index.
type rowOrder struct {
	index    ir.Ref
	matrices int
	at       int // in the memory that the plan holds
	checked  int // the launch up to which nothing has written the index
}

// orderOf returns the order for an index, or nil if there never are so many rows that it is needed. The kernel is that
// which computes the order, unless an earlier launch does.
func (c *compiler) orderOf(index ir.Ref, matrices int) (*rowOrder, *Kernel, error) {
	n := c.axisMax(index)
	if n <= rowsScan {
		return nil, nil, nil
	}
	c.orders = slices.DeleteFunc(c.orders, func(o *rowOrder) bool {
		if !o.index.Same(index) {
			return false
		}
		for ; o.checked < c.launch; o.checked++ {
			if slices.ContainsFunc(c.prog.Launches[o.checked].Out, func(v ir.Ref) bool { return v.Overlaps(index, c.dims) }) {
				return true
			}
		}
		return false
	})
	for _, o := range c.orders {
		if o.index.Same(index) && o.index.Type.Equal(index.Type) && o.matrices == matrices {
			return o, nil, nil
		}
	}
	k, err := c.kernel("rows_order", "rows_order", elementThreads)
	if err != nil {
		return nil, nil, err
	}
	o := &rowOrder{index, matrices, c.hold(4 * (matrices + 2 + n)), c.launch}
	c.orders = append(c.orders, o)
	return o, k, nil
}

// rows is the common part of launches of products and of gradients.
type rows struct {
	l        *ir.Launch
	a        ir.RowsGemmAttr
	plan     *Plan
	index    ir.Ref
	order    *rowOrder
	sort     *Kernel // computes the order, or nil
	kernels  []*Kernel
	tables   []rowsTable
	scale    int // index of the input, or -1
	matrices int
	launch   int
}

// rowsTable is a matrix, or a stack of them.
type rowsTable struct {
	at                 ir.Ref
	reads, gives, kind int
}

// newRows plans a launch without its kernels. Input number first is the first matrix; gradients write matrices instead
// of reading them.
func (c *compiler) newRows(l *ir.Launch, first int, grad bool) (p *rows, err error) {
	p = &rows{l: l, a: l.Attr.(ir.RowsGemmAttr), plan: c.Plan, index: l.In[first-1], launch: c.launch}
	types := inputTypes(l)
	p.matrices, p.scale = p.a.Matrices(types, first), p.a.Scale(first)
	for e := range max(1, p.a.Tables) {
		at := l.In[first+e]
		if grad {
			at = l.Out[e]
		}
		reads, gives := p.a.Size(types, first, e)
		p.tables = append(p.tables, rowsTable{at, reads, gives, firstFactors[at.Type.DType]})
	}
	p.order, p.sort, err = c.orderOf(p.index, p.matrices)
	c.refuse(func(_ *Run, where, value int) error {
		return fmt.Errorf("index %d at %d, there are %d matrices", value, where, p.matrices)
	})
	return p, err
}

// addKernels adds a kernel for every 16 matrices.
func (c *compiler) addKernels(p *rows, file, name string) error {
	for range blocks(len(p.tables), rowsTables) {
		k, err := c.kernel(file, name, rowsWarps*32)
		if err != nil {
			return err
		}
		p.kernels = append(p.kernels, k)
	}
	return nil
}

// tensorRows reports whether the products run on tensor cores.
func (c *compiler) tensorRows() bool {
	return c.target.TensorRows && c.target.Precision == backend.BF16
}

// rowsKernel returns the file and the name of a kernel, and the rows of its tiles.
func (c *compiler) rowsKernel(name, layout string) (file, full string, tile int) {
	if c.tensorRows() {
		return "rows_gemm", name + "_mma" + layout, 64
	}
	return "rows_gemm_f32", name + "_f32" + layout, 32
}

// fillOrder fills in the kernel that computes the order, and returns the order's address: 0 if blocks group the rows.
func (p *rows) fillOrder(r *Run, n int) Pointer {
	if p.sort != nil {
		p.sort.skip()
	}
	if n <= rowsScan {
		return 0
	}
	at := p.plan.held(r, p.order.at)
	if p.sort != nil {
		p.sort.grid(p.matrices+1, 1, 1).pointer("order", at).pointer("index", r.at(p.index)).pointer("trap", r.Trap)
		p.sort.int("n", n).int("matrices", p.matrices).int("launch", p.launch)
	}
	return at
}

// part returns the matrices of kernel i: the number of the first, their count, and for a stack the elements from one
// matrix to the next.
func (p *rows) part(i int) (own []rowsTable, first, tables, step int) {
	first = i * rowsTables
	own = p.tables[first:min(first+rowsTables, len(p.tables))]
	if p.a.Tables == 0 {
		return own, 0, p.matrices, own[0].reads * own[0].gives
	}
	return own, first, len(own), 0
}

// The parameters of matrices are numbered.
var tableW, tableSize = numbered("w"), numbered("size")

// addresses adds the addresses of matrices.
func (k *Kernel) addresses(r *Run, own []rowsTable) {
	for j := range rowsTables {
		var at Pointer
		if j < len(own) {
			at = r.at(own[j].at)
		}
		k.pointer(tableW[j], at)
	}
}

// sizes adds two sizes of each matrix, and flags.
func (k *Kernel) sizes(own []rowsTable, pack func(t *rowsTable) uint64) {
	for j := range rowsTables {
		var size uint64
		if j < len(own) {
			size = pack(&own[j])
		}
		k.arg(LongKind, tableSize[j], size)
	}
}

// input returns the address of an input, or 0 for number -1.
func (p *rows) input(r *Run, i int) Pointer {
	if i < 0 {
		return 0
	}
	return r.at(p.l.In[i])
}

func prepareRows(c *compiler, l *ir.Launch) (step, error) {
	if group := c.layerGroup(); group != nil {
		return c.newLayers(group)
	}
	layout := "_nn"
	if l.Attr.(ir.RowsGemmAttr).TB {
		layout = "_nt"
	}
	file, name, tile := c.rowsKernel("rows_gemm", layout)
	p, err := c.newRows(l, 2, false)
	if err == nil {
		err = c.addKernels(p, file, name)
	}
	if err != nil {
		return nil, err
	}
	return func(r *Run) { p.multiply(r, tile) }, nil
}

// shape returns the columns of x, the flags of a launch, and the number of blocks along the columns of the result.
func (p *rows) shape(r *Run) (size, flags, across int) {
	x, columns := p.l.In[0], rowsCols*rowsWarps
	size = r.axis(x, 1)
	if size > rowsWarps*stageK {
		columns, flags = rowsCols, rowsDeep
	}
	if size*x.Stored().Size()%16 == 0 && r.aligned(x) {
		flags |= rowsAlignedX
	}
	flags |= narrow(x)*rowsBF16X | narrow(p.l.Out[0])*rowsNarrow
	if p.a.HasC {
		flags |= narrow(p.l.In[p.a.C()]) * rowsAddend
	}
	return size, flags, blocks(p.a.Width, columns)
}

// rowTiles returns the number of tiles of n rows in some groups: in each as many as there may be if the rows are not
// ordered.
func rowTiles(groups, n, tile int, ordered bool) int {
	if ordered {
		return groups + n/tile
	}
	return groups * blocks(n, tile)
}

func (p *rows) multiply(r *Run, tile int) {
	n := r.count(p.index)
	order := p.fillOrder(r, n)
	size, flags, across := p.shape(r)
	for i, k := range p.kernels {
		own, first, tables, step := p.part(i)
		step *= own[0].at.Type.DType.Size()
		groups := tables
		if first == 0 {
			groups++ // rows without a matrix
		}
		k.grid(rowTiles(groups, n, tile, order != 0)*across, min(n, 1), 1).pointer("out", r.at(p.l.Out[0])).pointer("x", p.input(r, 0)).pointer("index", r.at(p.index)).pointer("order", order)
		k.pointer("scale", p.input(r, p.scale)).pointer("bias", p.input(r, p.a.Bias())).pointer("addend", p.input(r, p.a.C()))
		k.addresses(r, own)
		k.pointer("trap", r.Trap).int("n", n).int("k", size).int("width", p.a.Width).int("matrices", p.matrices).int("first", first).int("tables", tables)
		k.int("across", across).int("flags", flags).long("step", step)
		k.sizes(own, func(t *rowsTable) uint64 { return t.size(r, p.a.TB) })
		k.int("launch", p.launch)
	}
}

// size returns the sizes and flags of a matrix as the kernels of products read them.
func (t *rowsTable) size(r *Run, tb bool) uint64 {
	s := uint64(t.reads) | uint64(t.gives)<<30 | uint64(t.kind)<<60
	if bytes := t.at.Type.DType.Size() * t.reads; tb && bytes%16 == 0 && r.aligned(t.at) {
		s |= rowsWide
	}
	return s
}

func prepareRowsGrad(c *compiler, l *ir.Launch) (step, error) {
	file, name, tile := c.rowsKernel("rows_grad", "")
	p, err := c.newRows(l, 3, true)
	if err == nil {
		err = c.addKernels(p, file, name)
	}
	if err != nil {
		return nil, err
	}
	// Tiles have 16 columns of one factor. It is the factor with fewer columns in the matrices.
	high, low, rows, cols := l.In[1], l.In[0], 0, 0
	if p.a.TB {
		high, low = low, high
	}
	for i := range p.tables {
		t := &p.tables[i]
		if p.a.TB {
			t.reads, t.gives = t.gives, t.reads
		}
		rows, cols = max(rows, t.reads), max(cols, t.gives)
	}
	turned := rows > cols
	if turned {
		high, low, rows, cols = low, high, cols, rows
	}
	return func(r *Run) { p.gradients(r, high, low, blocks(rows, rowsCols), blocks(cols, tile), turned) }, nil
}

// gradients fills in the kernels that multiply the columns of a, down tiles of 16, by the columns of b.
func (p *rows) gradients(r *Run, a, b ir.Ref, down, across int, turned bool) {
	n := r.count(p.index)
	order := p.fillOrder(r, n)
	acrossA, acrossB := r.axis(a, 1), r.axis(b, 1)
	flags := bit(acrossB*b.Stored().Size()%16 == 0 && r.aligned(b))*gradAlignedQ | narrow(a)*gradBF16P | narrow(b)*gradBF16Q
	for i, k := range p.kernels {
		own, first, tables, step := p.part(i)
		k.grid(down*across, tables, 1).pointer("p", r.at(a)).pointer("q", r.at(b)).pointer("index", r.at(p.index)).pointer("order", order)
		k.pointer("scale", p.input(r, p.scale))
		k.addresses(r, own)
		k.int("n", n).int("across_p", acrossA).int("across_q", acrossB).int("matrices", p.matrices).int("first", first).int("tables", tables)
		k.int("tiles_n", across).int("turned", bit(turned)).int("flags", flags).long("step", step)
		k.sizes(own, func(t *rowsTable) uint64 { return uint64(t.reads) | uint64(t.gives)<<30 })
	}
}
