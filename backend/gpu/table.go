package gpu

import (
	"encoding/binary"
	"slices"

	"github.com/lorafuse/lorafuse/internal/ir"
)

// A table lists tensors for a launch that processes all of them. The host writes it before each run, into memory that
// belongs to the run until the run has ended; a first launch copies it into scratch memory of the device.
type table struct {
	at      int  // in the memory of a run's tables, in bytes
	first   int  // number of its first address in Run.Accesses
	block   int  // elements of a tensor that a block processes
	written uint // bit i: the launch writes value i of each tensor
	tensors [][]ir.Ref
}

// tableWords is the number of 64-bit words of a tensor in a table: the number of its elements, the number of its first
// block with the flag tableWide, and up to six addresses.
const tableWords = 8

// tableWide is the flag of tensors of a multiple of four elements whose addresses are aligned to 16 bytes.
const tableWide = 1 << 32

// tableTensors is the maximum number of tensors of a table.
const tableTensors = 1024

// add appends a tensor, given the values that belong to it. The first value has its size.
func (t *table) add(values ...ir.Ref) { t.tensors = append(t.tensors, values) }

// values returns the number of values of each tensor.
func (t *table) values() int { return len(t.tensors[0]) }

// bytes returns the size of the table.
func (t *table) bytes() int { return 8 * tableWords * len(t.tensors) }

// total returns the number of blocks of all tensors.
func (t *table) total(dims []int) (sum int) {
	for _, v := range t.tensors {
		sum += blocks(v[0].Type.Shape.Elements(dims), t.block)
	}
	return sum
}

// tabled holds the addresses in a table for a launch of a run.
type tabled struct {
	table, blocks Pointer // of the tensors, and the numbers of the tensors of all blocks
	total         int     // number of blocks
	free          Pointer // the scratch memory behind, aligned to 8 bytes
}

// overTable adds a table to the plan, with the launch that copies it and the named kernel for its tensors. The
// returned function sets up the copy and the grid of the kernel for a run.
func (c *compiler) overTable(t *table, name string) (k *Kernel, begin func(r *Run) tabled, err error) {
	fill, err := c.kernel("tensors", "tensor_table", 256)
	if err != nil {
		return nil, nil, err
	}
	if k, err = c.kernel("tensors", name, 256); err != nil {
		return nil, nil, err
	}
	t.at, t.first = c.TableBytes, c.Addresses
	c.TableBytes += t.bytes()
	c.Addresses += len(t.tensors) * t.values()
	c.tables = append(c.tables, t)
	tensors := len(t.tensors)
	c.reserve(t.bytes() + 8*blocks(t.total(c.dims), 2))
	return k, func(r *Run) tabled {
		a := tabled{table: r.Scratch, blocks: r.Scratch + Pointer(t.bytes()), total: t.total(r.Dims)}
		a.free = a.blocks + Pointer(8*blocks(a.total, 2))
		fill.grid(tensors, 1, 1).pointer("table", a.table).pointer("map", a.blocks).pointer("words", r.Table+Pointer(t.at)).int("tensors", tensors).int("total", a.total)
		k.grid(a.total, 1, 1).accesses(t.first, t.first+tensors*t.values())
		return a
	}, nil
}

// tabulate writes the tables of a run.
func (p *Plan) tabulate(r *Run) {
	for _, t := range p.tables {
		first := 0
		for i, values := range t.tensors {
			w := r.Words[t.at+8*tableWords*i:]
			n := r.count(values[0])
			begin := uint64(first)
			if n%4 == 0 && r.aligned(values...) {
				begin |= tableWide
			}
			binary.LittleEndian.PutUint64(w, uint64(n))
			binary.LittleEndian.PutUint64(w[8:], begin)
			for j, v := range values {
				at := r.list(t.first+i*len(values)+j, r.at(v), t.written>>j&1 != 0)
				binary.LittleEndian.PutUint64(w[16+8*j:], at)
			}
			first += blocks(n, t.block)
		}
	}
	if p.layers != nil {
		r.held = p.held(r, 0)
		p.layers.write(p, r)
	}
}

// copyBlock is the number of elements that a block of kernel copy_table_b4 copies. A table pays from copyTensors further
// tensors on.
const copyBlock, copyTensors = 4096, 4

// copyTable copies the values of the current launch and of the launches in list.
func (c *compiler) copyTable(list []int) (step, error) {
	t := &table{block: copyBlock, written: 1}
	for _, i := range append([]int{c.launch}, list...) {
		l := &c.prog.Launches[i]
		t.add(l.Out[0], l.In[0])
	}
	c.merge(list)
	return c.copyAll(t)
}

// copyAll copies the second value of each tensor of a table to the first.
func (c *compiler) copyAll(t *table) (step, error) {
	k, begin, err := c.overTable(t, "copy_table_b4")
	return func(r *Run) {
		a := begin(r)
		k.pointer("table", a.table).pointer("map", a.blocks).int("total", a.total)
	}, err
}

// appends reports whether a concatenation writes operands of fixed sizes and elements of four bytes one after the other.
func (c *compiler) appends(l *ir.Launch) bool {
	if l.Attr.(ir.ConcatAttr).Axis > 0 {
		return false
	}
	return !slices.ContainsFunc(l.In, func(in ir.Ref) bool {
		fixed := !slices.ContainsFunc(in.Type.Shape, func(d ir.Dim) bool { return d.Var != 0 })
		return !fixed || in.Stored() != l.Out[0].Stored() || in.Bytes(c.dims) != 4*in.Type.Shape.Elements(c.dims)
	})
}

// concatTable copies the operands of a concatenation for which appends is true.
func (c *compiler) concatTable(l *ir.Launch) (step, error) {
	var steps []step
	out := l.Out[0]
	for list := range slices.Chunk(l.In, tableTensors) {
		t := &table{block: copyBlock, written: 1}
		for _, in := range list {
			out.Type = in.Type
			t.add(out, in)
			out.Offset += in.Bytes(c.dims)
		}
		s, err := c.copyAll(t)
		if err != nil {
			return nil, err
		}
		steps = append(steps, s)
	}
	return func(r *Run) {
		for _, s := range steps {
			s(r)
		}
	}, nil
}

// copies reports whether a launch copies elements of four bytes to another place.
func (c *compiler) copies(l *ir.Launch) bool {
	n := 4 * l.Out[0].Type.Shape.Elements(c.dims)
	return !l.Out[0].Same(l.In[0]) && l.Out[0].Bytes(c.dims) == n && l.In[0].Bytes(c.dims) == n
}

// mergeSquares reports whether a later launch computes a sum of squares and the sums that are added to it, as in the
// norm of all gradients. It marks the launches that this one replaces.
func (c *compiler) mergeSquares(l *ir.Launch) bool {
	type pending struct{ x, sum ir.Ref }
	all := c.prog.Launches
	sum, tensors, merged, last := l.Out[0], []ir.Ref{l.In[0]}, []int{c.launch}, c.launch
	var waiting []pending // sums that have not yet been added
	var numbers []int     // their launches
	alone := func(v ir.Ref, from, reader int) bool {
		list := c.readers(v, from)
		return v.Space == ir.SpaceArena && len(list) == 1 && list[0] == reader
	}
	made := c.launch // the launch that computes sum
search:
	for i := c.launch + 1; i < len(all) && len(tensors) < tableTensors; i++ {
		next := &all[i]
		switch {
		case c.merged[i]:
		case next.Op == ir.SumSquares && !next.Out[0].Overlaps(sum, c.dims):
			waiting, numbers = append(waiting, pending{next.In[0], next.Out[0]}), append(numbers, i)
			continue
		case next.Op == ir.Binary && next.Attr == ir.BinaryAttr{Fn: ir.Add} && len(next.In) == 2:
			other := -1
			for j, v := range next.In {
				if v.Same(sum) {
					other = 1 - j
				}
			}
			if other < 0 {
				break
			}
			at := slices.IndexFunc(waiting, func(p pending) bool { return p.sum.Same(next.In[other]) })
			if at < 0 || !alone(sum, made+1, i) || !alone(waiting[at].sum, numbers[at]+1, i) {
				break search
			}
			tensors, merged = append(tensors, waiting[at].x), append(merged, numbers[at], i)
			waiting, numbers = slices.Delete(waiting, at, at+1), slices.Delete(numbers, at, at+1)
			sum, made, last = next.Out[0], i, i
			continue
		}
		// A launch that changes a tensor ends the search: squares are read after it.
		changed := func(x ir.Ref) bool {
			return slices.ContainsFunc(next.Out, func(o ir.Ref) bool { return o.Overlaps(x, c.dims) })
		}
		if slices.ContainsFunc(tensors, changed) || slices.ContainsFunc(waiting, func(p pending) bool { return changed(p.x) }) {
			break
		}
	}
	if last == c.launch {
		return false
	}
	for _, i := range merged {
		c.merged[i] = i != last
	}
	c.sums[last] = tensors
	return true
}

// readLater reports whether a launch writes a tensor whose squares a launch after the current one sums.
func (c *compiler) readLater(l *ir.Launch) bool {
	writes := func(x ir.Ref) bool {
		return slices.ContainsFunc(l.Out, func(o ir.Ref) bool { return o.Overlaps(x, c.dims) })
	}
	for last, tensors := range c.sums {
		if last > c.launch && slices.ContainsFunc(tensors, writes) {
			return true
		}
	}
	return false
}

// prepareSquares computes the sum of the squares of all tensors that mergeSquares has found for an addition.
func prepareSquares(c *compiler, l *ir.Launch) (step, error) {
	t := &table{block: squaresBlock}
	for _, x := range c.sums[c.launch] {
		t.add(x)
	}
	each, begin, err := c.overTable(t, "squares_table_f32")
	if err != nil {
		return nil, err
	}
	whole, err := c.kernel("tensors", "sum_table_f32", 256)
	if err != nil {
		return nil, err
	}
	tensors, out := len(t.tensors), l.Out[0]
	total := t.total(c.dims)
	c.reserve(t.bytes() + 8*blocks(total, 2) + 8*total)
	return func(r *Run) {
		a := begin(r)
		each.pointer("partial", a.free).pointer("table", a.table).pointer("map", a.blocks).int("total", a.total)
		whole.grid(1, 1, 1).pointer("out", r.at(out)).pointer("partial", a.free).pointer("words", a.table).int("tensors", tensors).int("total", a.total)
	}, nil
}
