package cpu

import (
	"fmt"
	"math"

	"github.com/lorafuse/lorafuse/internal/philox"
	"github.com/lorafuse/lorafuse/ir"
	"github.com/lorafuse/lorafuse/quant"
	"github.com/lorafuse/lorafuse/tensor"
)

func constKernel(r *run, l *ir.Launch) error {
	x := l.Attr.(ir.ConstAttr).Value
	switch o := l.Out[0]; o.Type.DType {
	case tensor.F32:
		fill(r, r.f32(o), float32(x))
	case tensor.I32:
		fill(r, r.i32(o), int32(x))
	case tensor.U32:
		fill(r, r.u32(o), uint32(x))
	case tensor.Bool:
		fill(r, r.bytes(o), byte(x))
	default:
		return fmt.Errorf("a constant of type %v", o.Type.DType)
	}
	return nil
}

func fill[T any](r *run, dst []T, x T) {
	r.elements(len(dst), func(lo, hi int) {
		for i := range dst[lo:hi] {
			dst[lo+i] = x
		}
	})
}

func iotaKernel(r *run, l *ir.Launch) error {
	dst, shape, axis := r.i32(l.Out[0]), r.shape(l.Out[0]), l.Attr.(ir.IotaAttr).Axis
	inner := 1
	for _, d := range shape[axis+1:] {
		inner *= d
	}
	n := shape[axis]
	r.elements(len(dst), func(lo, hi int) {
		for i := lo; i < hi; i++ {
			dst[i] = int32(i / inner % n)
		}
	})
	return nil
}

func (r *run) key(v ir.Ref) (seed uint64, step uint32) {
	k := r.u32(v)
	return uint64(k[0]) | uint64(k[1])<<32, k[2]
}

func philoxKernel(r *run, l *ir.Launch) error {
	seed, step := r.key(l.In[0])
	s := philox.NewStream(seed, step, l.Attr.(ir.PhiloxAttr).Stream)
	dst := r.u32(l.Out[0])
	r.elements(len(dst), func(lo, hi int) { s.Fill(dst[lo:hi], uint64(lo)) })
	return nil
}

func castKernel(r *run, l *ir.Launch) error {
	in, out := l.In[0], l.Out[0]
	from, to := in.Type.DType, out.Type.DType
	src, dst := r.bytes(in), r.bytes(out)
	n := out.Type.Shape.Elements(r.dims)
	var fail error
	if from.Quantized() {
		wide := r.f32(out)
		r.elements(n, func(lo, hi int) {
			if err := quant.Dequantize(wide[lo:hi], src, lo, from); err != nil {
				fail = err
			}
		})
		return fail
	}
	r.elements(n, func(lo, hi int) {
		s, d := src[lo*from.Size():hi*from.Size()], dst[lo*to.Size():hi*to.Size()]
		var err error
		switch {
		case from == to:
			copy(d, s)
		case to == tensor.F32:
			err = tensor.ToFloat32(view[float32](d, hi-lo), s, from)
		case from == tensor.F32:
			err = tensor.FromFloat32(d, view[float32](s, hi-lo), to)
		default:
			err = fmt.Errorf("cast from %v to %v", from, to)
		}
		if err != nil {
			fail = err
		}
	})
	return fail
}

func copyKernel(r *run, l *ir.Launch) error {
	src, dst := r.bytes(l.In[0]), r.bytes(l.Out[0])
	r.elements(len(dst), func(lo, hi int) { copy(dst[lo:hi], src[lo:hi]) })
	return nil
}

func argMaxKernel(r *run, l *ir.Launch) error {
	x, dst := r.f32(l.In[0]), r.i32(l.Out[0])
	n := l.In[0].Type.Last().Resolve(r.dims)
	r.rows(len(dst), n, func(lo, hi int) {
		for i := lo; i < hi; i++ {
			row, best := x[i*n:i*n+n], 0
			for j, v := range row {
				if v > row[best] {
					best = j
				}
			}
			dst[i] = int32(best)
		}
	})
	return nil
}

func reduceKernel(r *run, l *ir.Launch) error {
	a, shape := l.Attr.(ir.ReduceAttr), r.shape(l.In[0])
	if l.In[0].Type.DType != tensor.F32 {
		return fmt.Errorf("a reduction of %v", l.In[0].Type.DType)
	}
	x, dst := r.f32(l.In[0]), r.f32(l.Out[0])
	n, inner := shape[a.Axis], 1
	for _, d := range shape[a.Axis+1:] {
		inner *= d
	}
	if a.Axis == 0 && len(shape) == 2 && a.Fn == ir.ReduceSum {
		r.sumRows(dst, x, n, inner)
		return nil
	}
	// Sums run in float64 in the order of the axis.
	r.rows(len(dst), n, func(lo, hi int) {
		for o := lo; o < hi; o++ {
			at := o/inner*n*inner + o%inner
			if a.Fn == ir.ReduceMax {
				m := float32(math.Inf(-1))
				for i := range n {
					m = max(m, x[at+i*inner])
				}
				dst[o] = m
				continue
			}
			sum := 0.0
			for i := range n {
				sum += float64(x[at+i*inner])
			}
			dst[o] = float32(sum)
		}
	})
	return nil
}

// sumRows adds up the rows of x [n, cols], a few columns at a time.
func (r *run) sumRows(dst, x []float32, n, cols int) {
	const width = 128
	r.dev.pool.Run((cols+width-1)/width, func(t int) {
		var sums [width]float64
		lo, hi := t*width, min(cols, t*width+width)
		for i := range n {
			for j, v := range x[i*cols+lo : i*cols+hi] {
				sums[j] += float64(v)
			}
		}
		for j := lo; j < hi; j++ {
			dst[j] = float32(sums[j-lo])
		}
	})
}

func gatherKernel(r *run, l *ir.Launch) error {
	table, ids, dst := l.In[0], r.i32(l.In[1]), r.f32(l.Out[0])
	rows, d := r.matrix(table)
	src, size := r.bytes(table), table.Type.DType.Size()
	for i, id := range ids {
		if id < 0 || int(id) >= rows {
			return fmt.Errorf("id %d at %d, the table has %d rows", id, i, rows)
		}
	}
	var fail error
	r.rows(len(ids), d, func(lo, hi int) {
		for i := lo; i < hi; i++ {
			at := int(ids[i]) * d * size
			if err := tensor.ToFloat32(dst[i*d:i*d+d], src[at:at+d*size], table.Type.DType); err != nil {
				fail = err
			}
		}
	})
	return fail
}

func scatterKernel(r *run, l *ir.Launch) error {
	x, ids, dst := r.f32(l.In[0]), r.i32(l.In[1]), r.f32(l.Out[0])
	rows, d := r.matrix(l.Out[0])
	fill(r, dst, 0)
	for i, id := range ids {
		if id < 0 || int(id) >= rows {
			return fmt.Errorf("id %d at %d, the table has %d rows", id, i, rows)
		}
	}
	// Each task adds all rows, in their order, to some of the columns.
	const cols = 64
	r.dev.pool.Run((d+cols-1)/cols, func(t int) {
		lo, hi := t*cols, min(d, t*cols+cols)
		for i, id := range ids {
			to, from := dst[int(id)*d+lo:int(id)*d+hi], x[i*d+lo:i*d+hi]
			for j, v := range from {
				to[j] += v
			}
		}
	})
	return nil
}

func updateKernel(r *run, l *ir.Launch) error {
	table, rows, dst := r.bytes(l.In[0]), r.bytes(l.In[1]), r.bytes(l.Out[0])
	width := len(dst) / max(1, r.shape(l.Out[0])[0])
	off := int(r.i32(l.In[2])[0])
	if off < 0 || off*width+len(rows) > len(dst) {
		return fmt.Errorf("%d rows at %d do not fit a table of %d", r.shape(l.In[1])[0], off, r.shape(l.Out[0])[0])
	}
	if len(dst) > 0 && &table[0] != &dst[0] {
		copy(dst, table)
	}
	copy(dst[off*width:], rows)
	return nil
}
