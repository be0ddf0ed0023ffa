package cpu

import "github.com/lorafuse/lorafuse/ir"

// The kernels here move elements without looking at them.

func transposeKernel(r *run, l *ir.Launch) error {
	in, out, perm := r.shape(l.In[0]), r.shape(l.Out[0]), l.Attr.(ir.PermAttr).Perm()
	src := rowMajor(in)
	s := make([]int, len(out))
	for i, a := range perm {
		s[i] = src[a]
	}
	r.rearrange(l.Out[0], l.In[0], layout{general, s}, out)
	return nil
}

func broadcastKernel(r *run, l *ir.Launch) error {
	out := r.shape(l.Out[0])
	r.rearrange(l.Out[0], l.In[0], r.layout(l.In[0], out), out)
	return nil
}

// rearrange copies the elements that y chooses; runs along the last axis are
// copied as one where they lie side by side.
func (r *run) rearrange(dst, src ir.Ref, y layout, out []int) {
	if len(out) == 0 {
		copy(r.bytes(dst), r.bytes(src))
		return
	}
	size, last := dst.Type.DType.Size(), out[len(out)-1]
	d, s := r.bytes(dst), r.bytes(src)
	whole := y.kind == same || y.kind == perCol || y.kind == general && y.strides[len(out)-1] == 1
	r.rows(len(d)/max(1, size*last), last, func(lo, hi int) {
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
	})
}

func rowMajor(shape []int) []int {
	s := make([]int, len(shape))
	for i, n := len(shape)-1, 1; i >= 0; i-- {
		s[i] = n
		n *= shape[i]
	}
	return s
}

func sliceKernel(r *run, l *ir.Launch) error {
	a, in := l.Attr.(ir.SliceAttr), r.shape(l.In[0])
	size := l.In[0].Type.DType.Size()
	inner := product(in[a.Axis+1:]) * size
	width, step := (a.End-a.Start)*inner, in[a.Axis]*inner
	src, dst := r.bytes(l.In[0]), r.bytes(l.Out[0])
	if width == 0 {
		return nil
	}
	r.rows(len(dst)/width, width/size, func(lo, hi int) {
		for o := lo; o < hi; o++ {
			copy(dst[o*width:o*width+width], src[o*step+a.Start*inner:])
		}
	})
	return nil
}

func concatKernel(r *run, l *ir.Launch) error {
	axis, size := l.Attr.(ir.ConcatAttr).Axis, l.Out[0].Type.DType.Size()
	dst := r.bytes(l.Out[0])
	step, at := product(r.shape(l.Out[0])[axis:])*size, 0
	for _, v := range l.In {
		src := r.bytes(v)
		width := product(r.shape(v)[axis:]) * size
		if width == 0 {
			continue
		}
		off := at
		r.rows(len(src)/width, width/size, func(lo, hi int) {
			for o := lo; o < hi; o++ {
				copy(dst[o*step+off:], src[o*width:o*width+width])
			}
		})
		at += width
	}
	return nil
}
