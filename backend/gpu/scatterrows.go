package gpu

import (
	"fmt"
	"slices"

	"github.com/lorafuse/lorafuse/internal/ir"
	"github.com/lorafuse/lorafuse/tensor"
)

// These launches run the kernels of scatter_rows and rope_cache in kernels/shared.

// rowWords are the sizes that elements of rows are written in.
var rowWords = [...]int{2, 4, 16}

// prepareScatterRows writes rows over a table, which is copied first unless the result is in place. The next launch is
// fused into this one if it writes rows of the same size at the same index, as that for the values of a cache does.
func prepareScatterRows(c *compiler, l *ir.Launch) (step, error) {
	table, rows, index, out := l.In[0], l.In[1], l.In[2], l.Out[0]
	copyTable, err := c.copier(out, table)
	if err != nil {
		return nil, err
	}
	if rows.Stored() != out.Stored() {
		return c.scatterCast(l, copyTable)
	}
	size := out.Stored().Size()
	var by [len(rowWords)]*Kernel
	for i, w := range rowWords {
		if w < size {
			continue
		}
		if by[i], err = c.kernel("scatter_rows", fmt.Sprintf("scatter_rows_b%d", w), elementThreads); err != nil {
			return nil, err
		}
	}
	c.refuse(wrongPlace(l))
	twin, launch := c.mergeTwin(l), c.launch
	return func(r *Run) {
		copyTable(r)
		n, width := r.axis(index, 0), size*r.width(out)
		best, tables, out1, rows1 := 0, 1, Pointer(0), Pointer(0)
		if twin != nil {
			tables, out1, rows1 = 2, r.at(twin.Out[0]), r.at(twin.In[1])
		}
		for i, w := range rowWords {
			if by[i] == nil {
				continue
			}
			by[i].skip()
			if (r.at(out)|r.at(rows)|out1|rows1|Pointer(width))%Pointer(w) == 0 {
				best = i
			}
		}
		k := by[best].grid(n, tables, 1).pointer("out0", r.at(out)).pointer("x0", r.at(rows)).pointer("out1", out1).pointer("x1", rows1)
		k.pointer("index", r.at(index)).pointer("trap", r.Trap).long("width", width/rowWords[best]).int("n", n).int("rows", r.axis(out, 0)).int("launch", launch)
	}, nil
}

// scatterCast selects the kernel for rows that are stored as another type than the table.
func (c *compiler) scatterCast(l *ir.Launch, copyTable step) (step, error) {
	rows, index, out := l.In[1], l.In[2], l.Out[0]
	k, err := c.kernel("scatter_rows", "scatter_rows_"+suffix(rows.Stored())+"_"+suffix(out.Stored()), elementThreads)
	if err != nil {
		return nil, err
	}
	c.refuse(wrongPlace(l))
	twin, launch := c.mergeTwin(l), c.launch
	return func(r *Run) {
		copyTable(r)
		tables, out1, rows1 := 1, Pointer(0), Pointer(0)
		if twin != nil {
			tables, out1, rows1 = 2, r.at(twin.Out[0]), r.at(twin.In[1])
		}
		n := r.axis(index, 0)
		k.grid(n, tables, 1).pointer("out0", r.at(out)).pointer("x0", r.at(rows)).pointer("out1", out1).pointer("x1", rows1)
		k.pointer("index", r.at(index)).pointer("trap", r.Trap).long("width", r.width(out)).int("n", n).int("rows", r.axis(out, 0)).int("launch", launch)
	}, nil
}

// width returns the number of elements of a row, along the first axis.
func (r *Run) width(v ir.Ref) int {
	if n := r.axis(v, 0); n > 0 {
		return r.count(v) / n
	}
	return 0
}

func storesTable(_ any, _ []ir.Type, at ir.Place) bool { return at.Out || at.Index < 2 }

// wrongPlace explains an index of ScatterRows or an offset of UpdateRows that the table has no rows for.
func wrongPlace(l *ir.Launch) report {
	return func(r *Run, where, value int) error {
		have := r.axis(l.Out[0], 0)
		if l.Op == ir.UpdateRows {
			return fmt.Errorf("%d rows at %d do not fit a table of %d", r.axis(l.In[1], 0), value, have)
		}
		return fmt.Errorf("index %d at %d, the table has %d rows", value, where, have)
	}
}

// following returns launch i of the program if it is of one of the given operations, and else nil.
func (c *compiler) following(i int, ops ...ir.Op) *ir.Launch {
	if i >= len(c.prog.Launches) || !slices.Contains(ops, c.prog.Launches[i].Op) {
		return nil
	}
	return &c.prog.Launches[i]
}

// twin returns launch i if it is a pair of l, or nil. Both are ScatterRows or UpdateRows in place, and write rows of the
// same size at the same index.
func (c *compiler) twin(l *ir.Launch, i int) *ir.Launch {
	t := c.following(i, l.Op)
	if t == nil || !l.In[0].Same(l.Out[0]) || !t.In[0].Same(t.Out[0]) || !t.In[2].Same(l.In[2]) || !t.Out[0].Type.Equal(l.Out[0].Type) || t.Conflicts(l, c.dims) {
		return nil
	}
	return t
}

// mergeTwin merges the next launch into l, and returns it, if twin finds it and it stores its values as l does.
func (c *compiler) mergeTwin(l *ir.Launch) *ir.Launch {
	t := c.twin(l, c.launch+1)
	if t == nil || t.Out[0].Store != l.Out[0].Store || t.In[1].Store != l.In[1].Store {
		return nil
	}
	c.merged[c.launch+1] = true
	return t
}

// cacheGroup returns l, the RoPE of queries, and the launches that are fused with it. These are the RoPE of keys, and
// the writes of keys and values to a cache. It returns nil if the program has other launches there.
func (c *compiler) cacheGroup(l *ir.Launch) []*ir.Launch {
	q, k, keys := l, c.following(c.launch+1, ir.RoPE), c.following(c.launch+2, ir.ScatterRows, ir.UpdateRows)
	if k == nil || keys == nil {
		return nil
	}
	values := c.twin(keys, c.launch+3)
	a := q.Attr.(ir.RoPEAttr)
	if values == nil || k.Attr != q.Attr || a.Interleaved || a.Inverse || !k.In[1].Same(q.In[1]) || !keys.In[1].Same(k.Out[0]) ||
		keys.Out[0].Type.Rank() != 2 || keys.Out[0].Type.DType != tensor.F32 || c.depends(q, []*ir.Launch{k, keys, values}) || c.depends(k, []*ir.Launch{values}) {
		return nil
	}
	return []*ir.Launch{q, k, keys, values}
}

// ropeCache selects the kernels for the launches that cacheGroup returns.
func (c *compiler) ropeCache(group []*ir.Launch) (step, error) {
	one, err := c.kernel("rope_cache", "rope_cache", elementThreads)
	if err != nil {
		return nil, err
	}
	four, err := c.kernel("rope_cache", "rope_cache_v4", elementThreads)
	if err != nil {
		return nil, err
	}
	q, k, keys, values := group[0], group[1], group[2], group[3]
	bf16 := 0
	for i, v := range []ir.Ref{q.Out[0], q.In[0], k.Out[0], k.In[0], values.In[1], keys.Out[0], values.Out[0]} {
		bf16 |= bit(v.Stored() == tensor.BF16) << i
	}
	for i := range group[1:] {
		c.merged[c.launch+1+i] = true
	}
	writes := c.launch + 2
	c.reports[writes] = wrongPlace(keys)
	size, consecutive := q.Attr.(ir.RoPEAttr).HeadDim, 0
	if keys.Op == ir.UpdateRows {
		consecutive = 1
	}
	return func(r *Run) {
		one.skip()
		four.skip()
		main, groups := one, size/2
		if groups%4 == 0 && r.aligned(q.Out[0], q.In[0], k.Out[0], k.In[0], values.In[1], q.In[1], keys.Out[0], values.Out[0]) {
			main, groups = four, groups/4
		}
		n, width := r.matrix(q.Out[0])
		_, narrow := r.matrix(k.Out[0])
		heads, kv := width/size, narrow/size
		main.grid(n, blocks((heads+2*kv)*groups, elementThreads), 1).pointer("qo", r.at(q.Out[0])).pointer("q", r.at(q.In[0]))
		main.pointer("ko", r.at(k.Out[0])).pointer("k", r.at(k.In[0])).pointer("v", r.at(values.In[1])).pointer("table", r.at(q.In[1]))
		main.pointer("index", r.at(keys.In[2])).pointer("keys", r.at(keys.Out[0])).pointer("values", r.at(values.Out[0])).pointer("trap", r.Trap)
		main.int("heads", heads).int("kv", kv).int("h", size/2).int("n", n).int("rows", r.axis(keys.Out[0], 0)).int("consecutive", consecutive).int("bf16", bf16).int("launch", writes)
	}, nil
}
