package gpu

import (
	"encoding/binary"
	"slices"

	"github.com/lorafuse/lorafuse/internal/ir"
)

// These launches run the kernels rows_layers_mma of kernels/cuda/rows_gemm.cu and rows_layers_f32 of
// kernels/shared/rows_gemm_f32.cu: products that select their matrix by row, of several layers, with any number of
// matrices. The kernels read their operands from a table in the memory of the device. The host writes the tables of all
// launches before each run, and the first of these launches copies them.

const (
	layerWords    = 11 // of a layer in a table, without its matrices
	layerOperands = 7  // addresses of a layer, without its matrices
	// Tiles of rows are divided along the columns until a layer has this number of blocks. Without an order there are
	// tiles for all groups, most of which may have no rows.
	layerBlocks = 384
)

// layerTables are the tables of a program.
type layerTables struct {
	list  []*layers
	words int // of all tables
	from  int // in the memory of a run's tables, in bytes
	at    int // of the copy, in the memory that the plan holds
	copy  *Kernel
}

// layers is a launch of several products.
type layers struct {
	list   []*rows
	at     int // of its table, in words
	first  int // number of its first address in Run.Accesses
	end    int // number after its last one
	tile   int // rows of a tile
	kernel *Kernel
	launch int
}

// layered reports whether the kernels compute a launch.
func (c *compiler) layered(l *ir.Launch) bool {
	a, ok := l.Attr.(ir.RowsGemmAttr)
	return ok && l.Op == ir.RowsGemm && c.target.Tables && a.TB && a.Tables > 0
}

// layerGroup returns the current launch and the next ones, while they have as many rows and matrices and are
// independent of each other. It returns nil if the kernels cannot compute them, or do not pay: the tables of all groups
// need one launch more.
func (c *compiler) layerGroup() (group []*ir.Launch) {
	all := c.prog.Launches
	first := &all[c.launch]
	for i := c.launch; i < len(all) && c.layered(&all[i]); i++ {
		l := &all[i]
		if l.Attr.(ir.RowsGemmAttr).Tables != first.Attr.(ir.RowsGemmAttr).Tables || l.In[1].Type.Shape[0] != first.In[1].Type.Shape[0] || c.depends(l, group) {
			break
		}
		group = append(group, l)
	}
	if len(group) == 1 && c.layers == nil && first.Attr.(ir.RowsGemmAttr).Tables <= rowsTables {
		return nil
	}
	return group
}

// newLayers plans the launch of a group.
func (c *compiler) newLayers(group []*ir.Launch) (step, error) {
	for i := range group[1:] {
		c.merged[c.launch+1+i] = true
	}
	t := c.layers
	if t == nil {
		t = &layerTables{}
		c.layers = t
		var err error
		if t.copy, err = c.kernel("rows_gemm_f32", "rows_tables", 256); err != nil {
			return nil, err
		}
	}
	file, name, tile := c.rowsKernel("rows_layers", "")
	p := &layers{at: t.words, first: c.Addresses, tile: tile, launch: c.launch}
	for _, l := range group {
		o, err := c.newRows(l, 2, false)
		if err != nil {
			return nil, err
		}
		p.list = append(p.list, o)
		t.words += layerWords + 2*len(o.tables)
		c.Addresses += layerOperands + len(o.tables)
	}
	p.end = c.Addresses
	var err error
	p.kernel, err = c.kernel(file, name, rowsWarps*32)
	copies := len(t.list) == 0
	t.list = append(t.list, p)
	c.saves(p.saved)
	plan := c.Plan
	return func(r *Run) {
		if copies {
			t.copy.grid(min(blocks(t.words, 256), 64), 1, 1).pointer("table", plan.held(r, t.at)).pointer("words", r.Table+Pointer(t.from)).int("count", t.words)
		}
		n, total := r.count(p.list[0].index), 0
		for _, o := range p.list {
			o.fillOrder(r, n)
			tiles, spread := o.grid(r, n, p.tile)
			total += tiles * spread
		}
		p.kernel.accesses(p.first, p.end)
		p.kernel.grid(total, min(n, 1), 1).pointer("table", plan.held(r, t.at+8*p.at)).pointer("trap", r.Trap)
		p.kernel.int("n", n).int("layers", len(p.list)).int("launch", p.launch)
	}, err
}

// saved returns the bytes of x that layers share.
func (p *layers) saved(r *Run) (read, written int) {
	for i, o := range p.list {
		x := o.l.In[0]
		if slices.ContainsFunc(p.list[:i], func(before *rows) bool { return before.l.In[0].Same(x) }) {
			read += x.Bytes(r.Dims)
		}
	}
	return read, 0
}

// grid returns the number of tiles of n rows of a layer, and of the blocks of each.
func (p *rows) grid(r *Run, n, tile int) (tiles, spread int) {
	_, _, across := p.shape(r)
	tiles = rowTiles(p.matrices+1, n, tile, n > rowsScan)
	return tiles, max(1, min(across, blocks(layerBlocks, max(tiles, 1))))
}

// write writes the tables of a run.
func (t *layerTables) write(p *Plan, r *Run) {
	w := r.Words[t.from:]
	put := func(x uint64) {
		binary.LittleEndian.PutUint64(w, x)
		w = w[8:]
	}
	for _, l := range t.list {
		first, matrices, number := 0, layerWords*len(l.list), l.first
		list := func(at Pointer, written bool) {
			put(r.list(number, at, written))
			number++
		}
		for _, o := range l.list {
			n := r.count(o.index)
			size, flags, _ := o.shape(r)
			order := Pointer(0)
			if n > rowsScan {
				order = p.held(r, o.order.at)
			}
			list(r.at(o.l.Out[0]), true)
			for _, at := range []Pointer{r.at(o.l.In[0]), r.at(o.index), order, o.input(r, o.scale), o.input(r, o.a.Bias()), o.input(r, o.a.C())} {
				list(at, false)
			}
			put(uint64(size) | uint64(o.a.Width)<<32)
			put(uint64(o.matrices) | uint64(matrices)<<32)
			put(uint64(first))
			tiles, spread := o.grid(r, n, l.tile)
			put(uint64(spread) | uint64(flags)<<32)
			first += tiles * spread
			matrices += 2 * len(o.tables)
		}
		for _, o := range l.list {
			for i := range o.tables {
				m := &o.tables[i]
				list(r.at(m.at), false)
				put(m.size(r, true))
			}
		}
	}
}
