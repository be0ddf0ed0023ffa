package gpu

import (
	"slices"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/internal/ir"
	"github.com/lorafuse/lorafuse/tensor"
)

// spaceHeld is the memory, held until the run ends, for values that only the plan of a program has.
const spaceHeld = ir.SpaceArena + 1

// heldMost is the maximum number of bytes that the layers of one input hold.
const heldMost = 64 << 20

// adapted is a linear layer whose rows use several adapters, as numbers of its launches:
//
//	h = RowsGemm(x, A); y = Gemm(x, W); y = RowsGemm(h, B) + y; perhaps sum = y + addend
type adapted struct {
	low, base, up int
	sum           int // or -1
	addend        ir.Ref
	at            int // the launch before which h and the product with B can be computed
}

// startFromAdapters returns the program with layers of several adapters changed to start from the product with B, in
// memory of their own:
//
//	h = RowsGemm(x, A); c = RowsGemm(h, B) + addend; sum = Gemm(x, W) + c
//
// The Gemm then computes the final value. It is next to other products of x, and its kernels may also apply what
// follows, such as a GLU. The RowsGemms of all layers that read the same x are next to each other.
func (c *compiler) startFromAdapters() *ir.Program {
	var groups [][]adapted
	for i := range c.prog.Launches {
		a, ok := c.adaptedAt(i)
		if !ok {
			continue
		}
		if n := len(groups) - 1; n >= 0 && c.sharesInput(groups[n], &a) {
			groups[n] = append(groups[n], a)
		} else if c.moves(&a, a.low) {
			groups = append(groups, []adapted{a})
		}
	}
	before, held := map[int][]ir.Launch{}, 0
	launches := slices.Clone(c.prog.Launches)
	for _, group := range groups {
		lows, ups, bytes := c.heldLaunches(group)
		if bytes > heldMost {
			continue
		}
		held = max(held, bytes)
		for i, a := range group {
			base := &launches[a.base]
			attr := base.Attr.(ir.GemmAttr)
			attr.HasC = true
			base.Attr, base.In = attr, append(slices.Clone(base.In), ups[i].Out[0])
			launches[a.low], launches[a.up] = ir.Launch{}, ir.Launch{}
			if a.sum >= 0 {
				base.Out, launches[a.sum] = launches[a.sum].Out, ir.Launch{}
			}
		}
		before[group[0].at] = append(lows, ups...)
	}
	if held == 0 {
		return c.prog
	}
	c.hold(held) // the first value, at 0
	changed := *c.prog
	changed.Launches = nil
	for i, l := range launches {
		changed.Launches = append(changed.Launches, before[i]...)
		if !gone(&l) {
			changed.Launches = append(changed.Launches, l)
		}
	}
	return &changed
}

// heldLaunches returns the RowsGemms of a group, whose results are held, and the memory of these. Under bf16, kernels of
// several layers write the product with B as bfloat16 unless it has an addend.
func (c *compiler) heldLaunches(group []adapted) (lows, ups []ir.Launch, bytes int) {
	hold := func(t ir.Type, store tensor.DType) ir.Ref {
		v := ir.Ref{Space: spaceHeld, Offset: bytes, Type: t, Store: store}
		bytes += scratchBytes(v.Bytes(c.dims))
		return v
	}
	for _, a := range group {
		low, up := c.prog.Launches[a.low], c.prog.Launches[a.up]
		attr := up.Attr.(ir.RowsGemmAttr)
		up.In = slices.Clone(up.In[:attr.C()])
		if attr.HasC = a.sum >= 0; attr.HasC {
			up.In = append(up.In, a.addend)
		}
		store := tensor.Invalid
		if !attr.HasC && c.target.Precision == backend.BF16 && c.layered(&up) {
			store = tensor.BF16
		}
		low.Out, up.Attr, up.Out = []ir.Ref{hold(low.Out[0].Type, low.Out[0].Store)}, attr, []ir.Ref{hold(up.Out[0].Type, store)}
		up.In[0] = low.Out[0]
		lows, ups = append(lows, low), append(ups, up)
	}
	return lows, ups, bytes
}

// adaptedAt returns the layer whose Gemm is launch i.
func (c *compiler) adaptedAt(i int) (a adapted, ok bool) {
	all := c.prog.Launches
	base := &all[i]
	gemm, ok := base.Attr.(ir.GemmAttr)
	if !ok || gemm.HasC || !isChained(gemm) || base.Out[0].Type.Rank() != 2 {
		return a, false
	}
	y := base.Out[0]
	a = adapted{base: i, up: c.onlyReader(y, i), sum: -1}
	if a.up < 0 {
		return a, false
	}
	up := &all[a.up]
	attr, ok := up.Attr.(ir.RowsGemmAttr)
	if !ok || up.Op != ir.RowsGemm || !attr.HasC || !up.In[attr.C()].Same(y) || !up.Out[0].Same(y) {
		return a, false
	}
	h := up.In[0]
	for a.low = a.up - 1; a.low >= 0 && !writes(&all[a.low], h, c.dims); a.low-- {
	}
	if a.low < 0 {
		return a, false
	}
	low := &all[a.low]
	first, ok := low.Attr.(ir.RowsGemmAttr)
	if !ok || low.Op != ir.RowsGemm || first.HasC || !low.Out[0].Same(h) || c.onlyReader(h, a.low) != a.up {
		return a, false
	}
	if n := c.onlyReader(y, a.up); n >= 0 {
		a.addend, ok = added(&all[n], y, c.dims)
		if ok && c.writtenEarly(base, i, a.up, n) {
			a.sum = n
		}
	}
	return a, true
}

// onlyReader returns the launch that alone reads v, a value of the arena that launch i writes, or -1.
func (c *compiler) onlyReader(v ir.Ref, i int) int {
	if list := c.readers(v, i+1); v.Space == ir.SpaceArena && len(list) == 1 {
		return list[0]
	}
	return -1
}

// added returns the other operand of an addition to v in float32.
func added(l *ir.Launch, v ir.Ref, dims []int) (addend ir.Ref, ok bool) {
	addend, ok = addendOf(l, v)
	return addend, ok && l.Out[0].Store == tensor.Invalid && addend.Store == tensor.Invalid && !addend.Overlaps(v, dims)
}

// writtenEarly reports whether launch i can write the result of launch n. No factor may have its memory, and no launch
// between them but up may touch it.
func (c *compiler) writtenEarly(base *ir.Launch, i, up, n int) bool {
	out := c.prog.Launches[n].Out[0]
	over := func(v ir.Ref) bool { return v.Overlaps(out, c.dims) }
	if slices.ContainsFunc(base.In, over) {
		return false
	}
	for j := i + 1; j < n; j++ {
		l := &c.prog.Launches[j]
		if j != up && (slices.ContainsFunc(l.In, over) || slices.ContainsFunc(l.Out, over)) {
			return false
		}
	}
	return true
}

// sharesInput reports whether a layer joins a group, which reads the same x.
func (c *compiler) sharesInput(group []adapted, a *adapted) bool {
	all := c.prog.Launches
	x, own := all[group[0].low].In[0], all[a.low].In[0]
	return x.Same(own) && x.Type.Equal(own.Type) && c.moves(a, group[0].at)
}

// moves reports whether the RowsGemms of a layer can run before launch at: launches after it write none of their
// operands. It drops the sum from the layer if that needs a later addend.
func (c *compiler) moves(a *adapted, at int) bool {
	if at > a.low || at >= a.base {
		return false
	}
	all := c.prog.Launches
	written := func(end int, values ...ir.Ref) bool {
		for i := at; i < end; i++ {
			if i != a.low && slices.ContainsFunc(values, func(v ir.Ref) bool { return writes(&all[i], v, c.dims) }) {
				return true
			}
		}
		return false
	}
	up := &all[a.up]
	if written(a.low, all[a.low].In...) || written(a.up, up.In[1:up.Attr.(ir.RowsGemmAttr).C()]...) {
		return false
	}
	if a.at = at; a.sum >= 0 && written(a.sum, a.addend) {
		a.sum = -1
	}
	return true
}
