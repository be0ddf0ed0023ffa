package cpu

import (
	"fmt"
	"math"

	"github.com/lorafuse/lorafuse/internal/ir"
	"github.com/lorafuse/lorafuse/internal/philox"
	"github.com/lorafuse/lorafuse/internal/quant"
	"github.com/lorafuse/lorafuse/internal/vec"
	"github.com/lorafuse/lorafuse/tensor"
)

func constKernel(r *run, l *ir.Launch) func() error {
	x := l.Attr.(ir.ConstAttr).Value
	switch o := l.Out[0]; o.Type.DType {
	case tensor.F32:
		return filled(r, o, r.f32, float32(x))
	case tensor.I32:
		return filled(r, o, r.i32, int32(x))
	case tensor.U32:
		return filled(r, o, r.u32, uint32(x))
	case tensor.Bool:
		return filled(r, o, r.bytes, byte(x))
	}
	return never("a constant of type %v", l.Out[0].Type.DType)
}

func filled[T any](r *run, o ir.Ref, get func(ir.Ref) []T, x T) func() error {
	var dst []T
	part := func(lo, hi int) {
		for i := range dst[lo:hi] {
			dst[lo+i] = x
		}
	}
	return func() error {
		dst = get(o)
		r.elements(len(dst), part)
		return nil
	}
}

func iotaKernel(r *run, l *ir.Launch) func() error {
	axis := l.Attr.(ir.IotaAttr).Axis
	var dst []int32
	var inner, n int
	part := func(lo, hi int) {
		for i := lo; i < hi; i++ {
			dst[i] = int32(i / inner % n)
		}
	}
	return func() error {
		dst, n, inner = r.i32(l.Out[0]), r.axis(l.Out[0], axis), 1
		for i := axis + 1; i < l.Out[0].Type.Rank(); i++ {
			inner *= r.axis(l.Out[0], i)
		}
		r.elements(len(dst), part)
		return nil
	}
}

func (r *run) key(v ir.Ref) (seed uint64, step uint32) {
	k := r.u32(v)
	return uint64(k[0]) | uint64(k[1])<<32, k[2]
}

func philoxKernel(r *run, l *ir.Launch) func() error {
	var s philox.Stream
	var dst []uint32
	part := func(lo, hi int) { s.Fill(dst[lo:hi], uint64(lo)) }
	if l.In[0].Type.Rank() == 2 {
		return philoxRowsKernel(r, l)
	}
	return func() error {
		seed, step := r.key(l.In[0])
		s, dst = philox.NewStream(seed, step, l.Attr.(ir.PhiloxAttr).Stream), r.u32(l.Out[0])
		r.elements(len(dst), part)
		return nil
	}
}

// philoxRowsKernel draws words by a key for each row.
func philoxRowsKernel(r *run, l *ir.Launch) func() error {
	stream := l.Attr.(ir.PhiloxAttr).Stream
	var keys rowKeys
	var dst []uint32
	part := func(lo, hi int) {
		keys.each(lo, hi, func(seed uint64, step uint32, lo, hi int, word uint64) {
			s := philox.NewStream(seed, step, stream)
			s.Fill(dst[lo:hi], word)
		})
	}
	return func() error {
		keys, dst = r.rowKeys(l.In[0], l.Out[0]), r.u32(l.Out[0])
		r.elements(len(dst), part)
		return nil
	}
}

// rowKeys holds a random key per row, the row length, and the row numbers.
type rowKeys struct {
	words   []uint32 // {seed low, seed high, step, number} of each row
	columns int
}

// rowKeys returns the keys v for rows of a value such as x.
func (r *run) rowKeys(v, x ir.Ref) rowKeys {
	k := rowKeys{words: r.u32(v)}
	if n := r.axis(x, 0); n > 0 {
		k.columns = x.Type.Shape.Elements(r.dims) / n
	}
	return k
}

// each calls f for each row's part of the elements [lo, hi). word is the index of the part's first word in the stream
// of its key.
func (k rowKeys) each(lo, hi int, f func(seed uint64, step uint32, lo, hi int, word uint64)) {
	for lo < hi {
		row := lo / k.columns
		end := min(hi, (row+1)*k.columns)
		w := k.words[4*row : 4*row+4]
		f(uint64(w[0])|uint64(w[1])<<32, w[2], lo, end, uint64(w[3])*uint64(k.columns)+uint64(lo-row*k.columns))
		lo = end
	}
}

func castKernel(r *run, l *ir.Launch) func() error {
	from, to := l.In[0].Type.DType, l.Out[0].Type.DType
	var src, dst []byte
	var fail error
	part := func(lo, hi int) {
		if from.Quantized() {
			if err := quant.Dequantize(view[float32](dst[4*lo:4*hi], hi-lo), src, lo, from); err != nil {
				fail = err
			}
			return
		}
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
	}
	return func() error {
		fail, src, dst = nil, r.bytes(l.In[0]), r.bytes(l.Out[0])
		r.elements(l.Out[0].Type.Shape.Elements(r.dims), part)
		return fail
	}
}

func copyKernel(r *run, l *ir.Launch) func() error {
	var src, dst []byte
	part := func(lo, hi int) { copy(dst[lo:hi], src[lo:hi]) }
	return func() error {
		src, dst = r.bytes(l.In[0]), r.bytes(l.Out[0])
		r.elements(len(dst), part)
		return nil
	}
}

func argMaxKernel(r *run, l *ir.Launch) func() error {
	var x []float32
	var dst []int32
	n := 0
	part := func(lo, hi int) {
		for i := lo; i < hi; i++ {
			row, best := x[i*n:i*n+n], 0
			for j, v := range row {
				if v > row[best] {
					best = j
				}
			}
			dst[i] = int32(best)
		}
	}
	return func() error {
		x, dst = r.f32(l.In[0]), r.i32(l.Out[0])
		n = l.In[0].Type.Last().Resolve(r.dims)
		r.rows(len(dst), n, part)
		return nil
	}
}

func reduceKernel(r *run, l *ir.Launch) func() error {
	a := l.Attr.(ir.ReduceAttr)
	if l.In[0].Type.DType != tensor.F32 {
		return never("a reduction of %v", l.In[0].Type.DType)
	}
	if a.Axis == 0 && l.In[0].Type.Rank() == 2 && a.Fn == ir.ReduceSum {
		return sumRows(r, l)
	}
	var x, dst []float32
	var n, inner int
	// Sums are computed in float64 in the order of the axis, except in sumAlong.
	part := func(lo, hi int) {
		if inner == 1 {
			along := sumAlong
			if a.Fn == ir.ReduceMax {
				along = vec.Max
			}
			for o := lo; o < hi; o++ {
				dst[o] = along(x[o*n : o*n+n])
			}
			return
		}
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
	}
	return func() error {
		x, dst = r.f32(l.In[0]), r.f32(l.Out[0])
		n, inner = r.axis(l.In[0], a.Axis), 1
		for i := a.Axis + 1; i < l.In[0].Type.Rank(); i++ {
			inner *= r.axis(l.In[0], i)
		}
		r.rows(len(dst), n, part)
		return nil
	}
}

// sumAlong adds up x: blocks in float32 by the vector kernels, so that each sum has few terms, and the block sums in
// float64.
func sumAlong(x []float32) float32 {
	const most = 256
	sum := 0.0
	for len(x) > most {
		sum += float64(vec.Sum(x[:most]))
		x = x[most:]
	}
	return float32(sum + float64(vec.Sum(x)))
}

// sumRows adds up the rows of a matrix, a few columns at a time.
func sumRows(r *run, l *ir.Launch) func() error {
	const width = 128
	var x, dst []float32
	part := func(t int) {
		var sums [width]float64
		cols := len(dst)
		lo, hi := t*width, min(cols, t*width+width)
		for i := 0; i < len(x); i += cols {
			for j, v := range x[i+lo : i+hi] {
				sums[j] += float64(v)
			}
		}
		for j := lo; j < hi; j++ {
			dst[j] = float32(sums[j-lo])
		}
	}
	return func() error {
		x, dst = r.f32(l.In[0]), r.f32(l.Out[0])
		r.dev.pool.Run((len(dst)+width-1)/width, part)
		return nil
	}
}

func gatherKernel(r *run, l *ir.Launch) func() error {
	table := l.In[0]
	dtype := table.Stored()
	var src []byte
	var ids []int32
	var dst values
	var d int
	var fail error
	_, width := r.matrix(table)
	r.reserveRoom(l, 1, width)
	part := func(lo, hi int, m *wideScratch) {
		for i := lo; i < hi; i++ {
			m.reset(d)
			first, y := int(ids[i])*d, dst.out(i*d, d, m)
			var err error
			if dtype.Quantized() {
				err = quant.Dequantize(y, src, first, dtype)
			} else {
				err = tensor.ToFloat32(y, src[first*dtype.Size():(first+d)*dtype.Size()], dtype)
			}
			if err != nil {
				fail = err
			}
			dst.store(i*d, y)
		}
	}
	return func() (err error) {
		fail, src, ids, dst = nil, r.bytes(table), r.i32(l.In[1]), r.values(l.Out[0])
		if d, err = r.checkIDs(table, ids); err != nil {
			return err
		}
		r.rowsIn(len(ids), d, part)
		return fail
	}
}

// checkIDs finds an id that table has no row for, and gives the width of its
// rows.
func (r *run) checkIDs(table ir.Ref, ids []int32) (cols int, err error) {
	rows, cols := r.matrix(table)
	for i, id := range ids {
		if id < 0 || int(id) >= rows {
			return 0, fmt.Errorf("id %d at %d, the table has %d rows", id, i, rows)
		}
	}
	return cols, nil
}

func scatterKernel(r *run, l *ir.Launch) func() error {
	// Each task adds all rows, in their order, to some of the columns.
	const cols = 64
	var x, dst []float32
	var ids []int32
	var d int
	clean := filled(r, l.Out[0], r.f32, 0)
	part := func(t int) {
		lo, hi := t*cols, min(d, t*cols+cols)
		for i, id := range ids {
			to, from := dst[int(id)*d+lo:int(id)*d+hi], x[i*d+lo:i*d+hi]
			for j, v := range from {
				to[j] += v
			}
		}
	}
	return func() (err error) {
		x, ids, dst = r.f32(l.In[0]), r.i32(l.In[1]), r.f32(l.Out[0])
		if d, err = r.checkIDs(l.Out[0], ids); err != nil {
			return err
		}
		if err := clean(); err != nil {
			return err
		}
		r.dev.pool.Run((d+cols-1)/cols, part)
		return nil
	}
}

func updateKernel(r *run, l *ir.Launch) func() error {
	if l.In[0].Stored() != l.Out[0].Stored() || l.In[1].Stored() != l.Out[0].Stored() {
		return storedUpdate(r, l)
	}
	return func() error {
		table, rows, dst := r.bytes(l.In[0]), r.bytes(l.In[1]), r.bytes(l.Out[0])
		width := len(dst) / max(1, r.axis(l.Out[0], 0))
		off := int(r.i32(l.In[2])[0])
		if off < 0 || off*width+len(rows) > len(dst) {
			return fmt.Errorf("%d rows at %d do not fit a table of %d", r.axis(l.In[1], 0), off, r.axis(l.Out[0], 0))
		}
		if len(dst) > 0 && &table[0] != &dst[0] {
			copy(dst, table)
		}
		copy(dst[off*width:], rows)
		return nil
	}
}
