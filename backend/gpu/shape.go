package gpu

import (
	"fmt"

	"github.com/lorafuse/lorafuse/internal/ir"
)

// These launches run the kernels of file shape, which move elements without interpreting them, unless the two places
// store them in different types.

// words are the sizes that elements are moved in. Kernels of all of them are
// taken, since the size depends on the shapes and addresses of a run.
var words = [...]int{1, 2, 4, 8, 16}

// mover copies between strided operands.
type mover struct {
	size int // of an element of the destination
	from int // of one of the source
	by   [len(words)]*Kernel
	cast *Kernel // if the types differ, instead
}

// mover returns a mover of elements from src to dst.
func (c *compiler) mover(src, dst ir.Ref) (m *mover, err error) {
	m = &mover{size: dst.Stored().Size(), from: src.Stored().Size()}
	if m.size == 0 || m.from == 0 {
		return nil, unsupported("moving elements of %v", dst.Type.DType)
	}
	if src.Stored() != dst.Stored() {
		m.cast, err = c.kernel("shape", "copy_"+suffix(src.Stored())+"_"+suffix(dst.Stored()), elementThreads)
		return m, err
	}
	for i, w := range words {
		if w < m.size {
			continue
		}
		k, err := c.kernel("shape", fmt.Sprintf("copy_b%d", w), elementThreads)
		if err != nil {
			return nil, err
		}
		m.by[i] = k
	}
	return m, nil
}

// move sets the kernels. The kernel with the widest word that divides both operands does the copy; the others are
// skipped. Operand 0 of s is the destination.
func (m *mover) move(dst, src Pointer, s strided) {
	m.skip()
	s.join()
	if s.count() == 0 {
		return
	}
	if m.cast != nil {
		m.cast.elements(s.count()).pointer("out", dst).pointer("x", src).walk(&s, &copyStrides)
		return
	}
	best := 0
	for i, w := range words {
		if w >= m.size && m.fits(w, dst, src, &s) {
			best = i
		}
	}
	s.widen(words[best] / m.size)
	k := m.by[best].elements(s.count()).pointer("out", dst).pointer("x", src)
	k.walk(&s, &copyStrides)
}

// fits reports whether elements can be moved w bytes at a time.
func (m *mover) fits(w int, dst, src Pointer, s *strided) bool {
	times := w / m.size
	if times == 1 {
		return true
	}
	last := s.rank - 1
	if uintptr(dst)%uintptr(w) != 0 || uintptr(src)%uintptr(w) != 0 || last < 0 || s.dims[last]%times != 0 {
		return false
	}
	for o := range s.operands {
		if s.strides[o][last] != 1 {
			return false
		}
		for _, x := range s.strides[o][:last] {
			if x%times != 0 {
				return false
			}
		}
	}
	return true
}

// widen merges groups of neighbours on the last axis into single elements.
func (s *strided) widen(times int) {
	if times == 1 {
		return
	}
	s.dims[s.rank-1] /= times
	for o := range s.operands {
		for i := range s.rank - 1 {
			s.strides[o][i] /= times
		}
	}
}

func prepareCopy(c *compiler, l *ir.Launch) (step, error) {
	in, out := l.In[0], l.Out[0]
	if in.Type.DType.Quantized() {
		return nil, unsupported("moving elements of %v", in.Type.DType)
	}
	if c.target.Tables && c.copies(l) {
		if list := c.group(l, tableTensors, tableAhead, c.copies); len(list) >= copyTensors {
			return c.copyTable(list)
		}
	}
	return c.copier(out, in)
}

// copier selects the kernels that copy a value, or convert it if out is stored as another type. They are skipped if the
// result is in place.
func (c *compiler) copier(out, in ir.Ref) (step, error) {
	m, err := c.mover(in, out)
	if err != nil {
		return nil, err
	}
	return func(r *Run) {
		m.skip()
		if !r.same(in, out) {
			m.all(r, out, in)
		}
	}, nil
}

// all copies a whole value.
func (m *mover) all(r *Run, dst, src ir.Ref) {
	s := r.over(dst)
	s.contiguous()
	s.contiguous()
	m.move(r.at(dst), r.at(src), s)
}

func prepareBroadcast(c *compiler, l *ir.Launch) (step, error) {
	in, out := l.In[0], l.Out[0]
	m, err := c.mover(in, out)
	if err != nil {
		return nil, err
	}
	return func(r *Run) {
		s := r.over(out)
		s.contiguous()
		s.repeated(r, in)
		m.move(r.at(out), r.at(in), s)
	}, nil
}

// transposeTile is the side of a tile of the transposition.
const transposeTile = 32

func prepareTranspose(c *compiler, l *ir.Launch) (step, error) {
	in, out := l.In[0], l.Out[0]
	perm := l.Attr.(ir.PermAttr)
	m, err := c.mover(in, out)
	if err != nil {
		return nil, err
	}
	var tiled *Kernel
	if m.cast == nil {
		if tiled, err = c.kernel("shape", fmt.Sprintf("transpose_b%d", m.size), 256); err != nil {
			return nil, err
		}
	}
	return func(r *Run) {
		s := r.over(out)
		s.contiguous()
		var src [ir.MaxRank]int
		for a, step := s.rank-1, 1; a >= 0; a-- {
			src[a] = step
			step *= r.axis(in, a)
		}
		for i := range s.rank {
			s.strides[1][i] = src[perm.P[i]]
		}
		s.operands++
		m.move(r.at(out), r.at(in), s)
		if tiled == nil {
			return
		}
		tiled.skip()
		s.join()
		if rows, cols, batch, ok := s.matrices(); ok {
			m.skip()
			tiled.grid(blocks(rows, transposeTile)*blocks(cols, transposeTile), min(batch, maxGrid), 1)
			tiled.pointer("out", r.at(out)).pointer("x", r.at(in)).int("rows", rows).int("cols", cols).int("batch", batch)
		}
	}, nil
}

// maxGrid is the largest number of blocks along y and z.
const maxGrid = 65535

func (m *mover) skip() {
	if m.cast != nil {
		m.cast.skip()
	}
	for _, k := range m.by {
		if k != nil {
			k.skip()
		}
	}
}

// matrices reports whether a joined walk transposes consecutive matrices of rows by cols.
func (s *strided) matrices() (rows, cols, batch int, ok bool) {
	if s.rank < 2 || s.rank > 3 {
		return 0, 0, 0, false
	}
	// The output is [batch, cols, rows].
	cols, rows, batch = s.dims[s.rank-2], s.dims[s.rank-1], 1
	from := s.strides[1]
	if from[s.rank-2] != 1 || from[s.rank-1] != cols {
		return 0, 0, 0, false
	}
	if s.rank == 3 {
		batch = s.dims[0]
		if from[0] != rows*cols {
			return 0, 0, 0, false
		}
	}
	return rows, cols, batch, rows*cols*batch > 0
}

func prepareSlice(c *compiler, l *ir.Launch) (step, error) {
	in, out, a := l.In[0], l.Out[0], l.Attr.(ir.SliceAttr)
	m, err := c.mover(in, out)
	if err != nil {
		return nil, err
	}
	return func(r *Run) {
		s := r.over(out)
		s.contiguous()
		off := s.within(r, in, a.Axis, a.First(r.axis(out, a.Axis)))
		m.move(r.at(out), r.at(in)+Pointer(off*m.from), s)
	}, nil
}

// within adds an operand that is the part of v from start on along one axis, and returns the index of its first
// element.
func (s *strided) within(r *Run, v ir.Ref, axis, start int) (first int) {
	step := 1
	for i := s.rank - 1; i >= 0; i-- {
		s.strides[s.operands][i] = step
		if i == axis {
			first = start * step
		}
		step *= r.axis(v, i)
	}
	s.operands++
	return first
}

func prepareConcat(c *compiler, l *ir.Launch) (step, error) {
	out, axis := l.Out[0], l.Attr.(ir.ConcatAttr).Axis
	if c.target.Tables && len(l.In) > copyTensors && c.appends(l) {
		return c.concatTable(l)
	}
	movers := make([]*mover, len(l.In))
	for i := range movers {
		var err error
		if movers[i], err = c.mover(l.In[i], out); err != nil {
			return nil, err
		}
	}
	return func(r *Run) {
		at := 0
		for i, in := range l.In {
			s := r.over(in)
			off := s.within(r, out, axis, at)
			s.contiguous()
			movers[i].move(r.at(out)+Pointer(off*movers[i].size), r.at(in), s)
			at += r.axis(in, axis)
		}
	}, nil
}
