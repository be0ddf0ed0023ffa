package gpu

import (
	"fmt"

	"github.com/lorafuse/lorafuse/internal/ir"
	"github.com/lorafuse/lorafuse/tensor"
)

// These launches run the kernels of file rows.

// rowBlock is the number of columns of a row that a block processes.
const rowBlock = elementThreads * perThread

// checkIDs selects a kernel that detects IDs outside a table.
func (c *compiler) checkIDs(l *ir.Launch, table, ids ir.Ref) (step, error) {
	k, err := c.kernel("rows", "check_ids", 256)
	if err != nil {
		return nil, err
	}
	c.refuse(func(r *Run, where, value int) error {
		rows, _ := r.matrix(table)
		return fmt.Errorf("id %d at %d, the table has %d rows", value, where, rows)
	})
	launch := c.launch
	return func(r *Run) {
		n := r.count(ids)
		k.grid(min(n, 1), 1, 1).pointer("ids", r.at(ids)).pointer("trap", r.Trap).int("n", n).int("rows", r.axis(table, 0)).int("launch", launch)
	}, nil
}

func prepareGather(c *compiler, l *ir.Launch) (step, error) {
	table, ids, out := l.In[0], l.In[1], l.Out[0]
	if d := table.Type.DType; d != tensor.F32 && !(d.IsFloat() && castable[d]) {
		return nil, unsupported("rows of %v", table.Type.DType)
	}
	check, err := c.checkIDs(l, table, ids)
	if err != nil {
		return nil, err
	}
	k, err := c.kernel("rows", "gather_rows_"+suffix(table.Stored())+"_"+suffix(out.Stored()), elementThreads)
	if err != nil {
		return nil, err
	}
	return func(r *Run) {
		check(r)
		cols := r.axis(table, 1)
		k.grid(r.count(ids), blocks(cols, rowBlock), 1)
		k.pointer("out", r.at(out)).pointer("table", r.at(table)).pointer("ids", r.at(ids)).int("rows", r.axis(table, 0)).int("cols", cols)
	}, nil
}

func prepareScatter(c *compiler, l *ir.Launch) (step, error) {
	in, ids, out := l.In[0], l.In[1], l.Out[0]
	check, err := c.checkIDs(l, out, ids)
	if err != nil {
		return nil, err
	}
	zero, err := c.kernel("elementwise", "fill_b4", elementThreads)
	if err != nil {
		return nil, err
	}
	k, err := c.kernel("rows", "scatter_add_rows_f32", elementThreads)
	if err != nil {
		return nil, err
	}
	return func(r *Run) {
		check(r)
		zero.elements(r.count(out)).pointer("out", r.at(out)).int("value", 0).long("n", r.count(out))
		n, cols := r.count(ids), r.axis(out, 1)
		k.grid(n, blocks(cols, rowBlock), 1)
		k.pointer("out", r.at(out)).pointer("x", r.at(in)).pointer("ids", r.at(ids)).int("n", n).int("rows", r.axis(out, 0)).int("cols", cols)
	}, nil
}

func prepareUpdate(c *compiler, l *ir.Launch) (step, error) {
	table, rows, offset, out := l.In[0], l.In[1], l.In[2], l.Out[0]
	copyTable, err := c.copier(out, table)
	if err != nil {
		return nil, err
	}
	name := fmt.Sprintf("b%d", out.Stored().Size())
	if rows.Stored() != out.Stored() {
		name = suffix(rows.Stored()) + "_" + suffix(out.Stored())
	}
	k, err := c.kernel("rows", "update_rows_"+name, elementThreads)
	if err != nil {
		return nil, err
	}
	c.refuse(wrongPlace(l))
	launch := c.launch
	return func(r *Run) {
		copyTable(r)
		_, n, width := r.around(rows, 0)
		// One block at least, to find an offset that is wrong.
		k.grid(max(1, blocks(n*width, rowBlock)), 1, 1).pointer("out", r.at(out)).pointer("x", r.at(rows)).pointer("offset", r.at(offset))
		k.pointer("trap", r.Trap).long("width", width).int("n", n).int("rows", r.axis(out, 0)).int("launch", launch)
	}, nil
}
