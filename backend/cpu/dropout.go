package cpu

import (
	"github.com/lorafuse/lorafuse/backend/cpu/internal/gemm"
	"github.com/lorafuse/lorafuse/internal/ir"
	"github.com/lorafuse/lorafuse/internal/philox"
	"github.com/lorafuse/lorafuse/internal/vec"
)

func dropoutKernel(r *run, l *ir.Launch) func() error {
	d := r.newDrop(l.Attr.(ir.DropoutAttr), l.In[1], l.Out[0])
	var x, dst values
	r.reserveRoom(l, 2, storedElements)
	part := func(lo, hi int, m *wideScratch) {
		for n := 0; lo < hi; lo += n {
			n = m.reset(hi - lo)
			y := dst.out(lo, n, m)
			d.apply(y, x.in(lo, n, m), lo)
			dst.store(lo, y)
		}
	}
	return func() error {
		x, dst = r.values(l.In[0]), r.values(l.Out[0])
		d.draw(dst.n)
		r.elementsIn(dst.n, part)
		return nil
	}
}

// drop is the dropout of a launch, determined by its key. apply applies it to a range of elements of a value with the
// shape of the dropout's operand.
type drop struct {
	r     *run
	attr  ir.DropoutAttr
	key   ir.Ref
	scale float32
	mask  philox.Mask
	kept  *keptMask
	bits  []byte // of the mask; nil if generated on the fly
	x     ir.Ref
	rows  rowKeys // where each row has a key of its own
	apply gemm.Filter
}

// keptMask is a mask that several launches of a program share, such as the forward and backward launches of an
// adapter: one bit per element. Generating it takes four times as long as applying it.
type keptMask struct {
	id     maskID
	uses   int
	bits   []byte
	mask   philox.Mask // generator of bits,
	length int         // and of how many elements
	part   func(lo, hi int)
}

// maskID identifies the mask of a launch. Launches with equal IDs share a mask.
type maskID struct {
	attr        ir.DropoutAttr
	space       ir.Space
	index, from int // of the key
	elements    int // at the largest dimensions
}

// newDrop prepares the dropout of a value such as x.
func (r *run) newDrop(a ir.DropoutAttr, key, x ir.Ref) *drop {
	d := &drop{r: r, attr: a, key: key, x: x, scale: float32(1 / (1 - a.P))}
	if key.Type.Rank() == 2 {
		d.apply = d.applyRows
		return d
	}
	d.apply = func(dst, src []float32, start int) {
		if d.bits != nil {
			vec.Masked(dst, src, d.bits, start, d.scale)
		} else {
			vec.Dropout(dst, src, d.mask, uint64(start), d.scale)
		}
	}
	if vec.Keeps() {
		d.kept = r.keep(maskID{a, key.Space, key.Index, key.Offset, x.Type.Shape.Elements(r.dims)})
	}
	return d
}

// applyRows applies dropout if each row has its own key.
func (d *drop) applyRows(dst, src []float32, start int) {
	threshold := philox.Threshold(d.attr.P)
	d.rows.each(start, start+len(src), func(seed uint64, step uint32, lo, hi int, word uint64) {
		m := philox.Mask{Stream: philox.NewStream(seed, step, d.attr.Stream), Threshold: threshold}
		vec.Dropout(dst[lo-start:hi-start], src[lo-start:hi-start], m, word, d.scale)
	})
}

// draw reads the key of this run, for n elements.
func (d *drop) draw(n int) {
	if d.key.Type.Rank() == 2 {
		d.rows = d.r.rowKeys(d.key, d.x)
		return
	}
	seed, step := d.r.key(d.key)
	d.mask, d.bits = philox.NewMask(seed, step, d.attr.Stream, d.attr.P), nil
	k := d.kept
	if k == nil || len(k.bits) == 0 {
		return
	}
	if k.mask != d.mask || k.length < n {
		k.mask, k.length = d.mask, n
		d.r.elements(8*maskBytes(n), k.part)
	}
	d.bits = k.bits
}

// keep returns the mask with the given id and counts one more use of it.
func (r *run) keep(id maskID) *keptMask {
	for _, k := range r.masks {
		if k.id == id {
			k.uses++
			return k
		}
	}
	k := &keptMask{id: id, uses: 1}
	k.part = func(lo, hi int) { vec.Keep(k.bits[lo/8:hi/8], k.mask, uint64(lo)) }
	r.masks = append(r.masks, k)
	return k
}

// maskBytes returns the size of n bits in bytes, rounded up to groups of 64 bits.
func maskBytes(n int) int { return (n + 63) / 64 * 8 }

// maskMemory returns the memory for all masks that are used more than once.
func (r *run) maskMemory() int {
	bytes := 0
	for _, k := range r.masks {
		if k.uses > 1 {
			bytes += maskBytes(k.id.elements)
		}
	}
	return bytes
}

// keepMasks assigns memory to the masks.
func (r *run) keepMasks(memory []byte) {
	for _, k := range r.masks {
		if k.uses > 1 {
			n := maskBytes(k.id.elements)
			k.bits, memory = memory[:n:n], memory[n:]
		}
	}
}
