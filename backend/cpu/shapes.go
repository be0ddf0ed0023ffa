package cpu

import "github.com/lorafuse/lorafuse/internal/ir"

// The kernels here move elements without looking at them.

func transposeKernel(r *run, l *ir.Launch) func() error {
	perm := l.Attr.(ir.PermAttr).Perm()
	return rearrange(r, l, func(out []int) layout {
		y, step := layout{kind: general}, 1
		var src [ir.MaxRank]int
		for a := len(perm) - 1; a >= 0; a-- {
			src[a] = step
			step *= r.axis(l.In[0], a)
		}
		for i, a := range perm {
			y.strides[i] = src[a]
		}
		return y
	})
}

func broadcastKernel(r *run, l *ir.Launch) func() error {
	return rearrange(r, l, func(out []int) layout { return r.layout(l.In[0], out) })
}

// rearrange copies the elements that choose selects for an output of a shape. Contiguous runs along the last axis are
// copied at once.
func rearrange(r *run, l *ir.Launch, choose func(out []int) layout) func() error {
	size := l.Out[0].Type.DType.Size()
	var d, s []byte
	var y layout
	var out []int
	var last int
	var whole bool
	part := func(lo, hi int) {
		for row := lo; row < hi; row++ {
			to := d[row*last*size : (row+1)*last*size]
			at := y.index(row*last, out)
			if whole {
				copy(to, s[at*size:])
				continue
			}
			step := 0
			if y.kind == general {
				step = y.strides[len(out)-1]
			}
			for i := range last {
				copy(to[i*size:i*size+size], s[(at+i*step)*size:])
			}
		}
	}
	return func() error {
		d, s = r.bytes(l.Out[0]), r.bytes(l.In[0])
		if out = r.shape(out[:0], l.Out[0]); len(out) == 0 {
			copy(d, s)
			return nil
		}
		y, last = choose(out), out[len(out)-1]
		whole = y.kind == same || y.kind == perCol || y.kind == general && y.strides[len(out)-1] == 1
		r.rows(len(d)/max(1, size*last), last, part)
		return nil
	}
}

// inner returns the number of bytes between neighbours along an axis of v.
func (r *run) inner(v ir.Ref, axis int) int {
	n := v.Stored().Size()
	for i := axis + 1; i < v.Type.Rank(); i++ {
		n *= r.axis(v, i)
	}
	return n
}

func sliceKernel(r *run, l *ir.Launch) func() error {
	if l.In[0].Stored() != l.Out[0].Stored() {
		return storedSlice(r, l)
	}
	a, size := l.Attr.(ir.SliceAttr), l.In[0].Stored().Size()
	var src, dst []byte
	var width, step, start int
	part := func(lo, hi int) {
		for o := lo; o < hi; o++ {
			copy(dst[o*width:o*width+width], src[o*step+start:])
		}
	}
	return func() error {
		inner, n := r.inner(l.In[0], a.Axis), r.axis(l.Out[0], a.Axis)
		width, step, start = n*inner, r.axis(l.In[0], a.Axis)*inner, a.First(n)*inner
		src, dst = r.bytes(l.In[0]), r.bytes(l.Out[0])
		if width > 0 {
			r.rows(len(dst)/width, width/size, part)
		}
		return nil
	}
}

func concatKernel(r *run, l *ir.Launch) func() error {
	for _, v := range l.In {
		if v.Stored() != l.Out[0].Stored() {
			return storedConcat(r, l)
		}
	}
	axis, size := l.Attr.(ir.ConcatAttr).Axis, l.Out[0].Stored().Size()
	var src, dst []byte
	var width, step, at int
	part := func(lo, hi int) {
		for o := lo; o < hi; o++ {
			copy(dst[o*step+at:], src[o*width:o*width+width])
		}
	}
	return func() error {
		dst, at = r.bytes(l.Out[0]), 0
		step = r.axis(l.Out[0], axis) * r.inner(l.Out[0], axis)
		for _, v := range l.In {
			src, width = r.bytes(v), r.axis(v, axis)*r.inner(v, axis)
			if width == 0 {
				continue
			}
			r.rows(len(src)/width, width/size, part)
			at += width
		}
		return nil
	}
}

// storedSlice returns a sliceKernel for elements that change their dtype in memory.
func storedSlice(r *run, l *ir.Launch) func() error {
	a := l.Attr.(ir.SliceAttr)
	var src, dst values
	var width, step, start int
	part := func(lo, hi int) {
		for o := lo; o < hi; o++ {
			dst.move(o*width, &src, o*step+start, width)
		}
	}
	return func() error {
		inner, n := r.inner(l.In[0], a.Axis)/l.In[0].Stored().Size(), r.axis(l.Out[0], a.Axis)
		width, step, start = n*inner, r.axis(l.In[0], a.Axis)*inner, a.First(n)*inner
		src, dst = r.values(l.In[0]), r.values(l.Out[0])
		if width > 0 {
			r.rows(dst.n/width, width, part)
		}
		return nil
	}
}

// storedConcat returns a concatKernel for elements that change their dtype in memory.
func storedConcat(r *run, l *ir.Launch) func() error {
	axis := l.Attr.(ir.ConcatAttr).Axis
	var src, dst values
	var width, step, at int
	part := func(lo, hi int) {
		for o := lo; o < hi; o++ {
			dst.move(o*step+at, &src, o*width, width)
		}
	}
	return func() error {
		dst, at = r.values(l.Out[0]), 0
		step = r.axis(l.Out[0], axis) * r.inner(l.Out[0], axis) / l.Out[0].Stored().Size()
		for _, v := range l.In {
			src, width = r.values(v), r.axis(v, axis)*r.inner(v, axis)/v.Stored().Size()
			if width == 0 {
				continue
			}
			r.rows(src.n/width, width, part)
			at += width
		}
		return nil
	}
}
