package gemm

import (
	"unsafe"

	"github.com/lorafuse/lorafuse/tensor"
)

// A C that lies in memory as bfloat16 is computed in float32 and rounded once.
// Panels, which have many rows, do so block by block: a task keeps its
// block in memory of its own until all of k is added. All other ways have few
// rows or few columns, or go by few rows at a time, and compute the whole of C first.

// Stored is a C in memory as bfloat16.
type Stored struct {
	Data unsafe.Pointer // [M,N], row i at element i*LDC
	// From is the initial value of C if the call accumulates: float32 or bfloat16, possibly C itself.
	From Matrix
}

// storedFloats is the maximum number of floats of C that a task keeps, except for the last rows.
const storedFloats = 512 << 10

// Widens reports whether values may be stored as bfloat16, so that ways for float32 widen them.
func (e *Engine) Widens() bool { return e.mode.bf16 }

// widens reports whether m is read through float32 where a way takes no other:
// bfloat16, where values are stored so.
func (s *shape) widens(m *Matrix) bool { return s.mode.bf16 && m.Elem == BF16 }

// direct reports whether ways that read float32 in place accept m.
func (s *shape) direct(m *Matrix) bool { return m.Elem == F32 || s.widens(m) }

// row returns elements [n0,n1) of row m of the matrix, which is not transposed, as float32.
func (m *Matrix) row(dst []float32, i, n0, n1 int) {
	src := at(m.Data, m.Elem.Size()*(i*m.Stride+n0))
	if m.Elem == F32 {
		copy(dst[:n1-n0], unsafe.Slice((*float32)(src), n1-n0))
		return
	}
	// The lengths fit, and the type is one of a matrix.
	_ = tensor.ToFloat32(dst[:n1-n0], unsafe.Slice((*byte)(src), 2*(n1-n0)), tensor.BF16)
}

// storeBlock rounds a block to rows [m0,m1) and columns [n0,n1) of C. Rows of the block are ld apart.
func (c *Call) storeBlock(block []float32, ld, m0, m1, n0, n1 int) {
	for i := m0; i < m1; i++ {
		row := block[(i-m0)*ld:][:n1-n0]
		if c.Filter != nil {
			c.Filter(row, row, i*c.LDC+n0)
		}
		to := at(c.Stored.Data, BF16.Size()*(i*c.LDC+n0))
		_ = tensor.FromFloat32(unsafe.Slice((*byte)(to), 2*(n1-n0)), row, tensor.BF16)
	}
}

// initBlock fills a block with the initial value of C.
func (c *Call) initBlock(block []float32, ld, m0, m1, n0, n1 int) {
	for i := m0; i < m1; i++ {
		c.Stored.From.row(block[(i-m0)*ld:], i, n0, n1)
	}
}

// whole is a call whose C is stored, computed in float32 as a whole.
type whole struct {
	c     *Call // the call, nil where its C is not stored
	call  Call  // what is computed instead
	data  buffer
	round func(i int)
}

// wholeRows is the number of rows that are rounded at a time.
const wholeRows = 8

func (w *whole) bind() {
	w.round = func(i int) {
		m0 := i * wholeRows
		m1 := min(w.c.M, m0+wholeRows)
		w.c.storeBlock(w.call.C[m0*w.c.N:], w.c.N, m0, m1, 0, w.c.N)
	}
}

// begin replaces C of the job by a float32 buffer.
func (w *whole) begin(j *job) {
	if j.c.Stored == nil {
		return
	}
	c := j.c
	w.c, w.call = c, *c
	w.call.C, w.call.LDC, w.call.Stored, w.call.Filter = w.data.alloc(c.M * c.N)[:c.M*c.N], c.N, nil, nil
	if c.Accumulate {
		c.initBlock(w.call.C, c.N, 0, c.M, 0, c.N)
	}
	j.c = &w.call
}

// end rounds C into its place.
func (w *whole) end(j *job) {
	if w.c == nil {
		return
	}
	j.spread(ceil(w.c.M, wholeRows), w.round)
	j.c, w.c, w.call = w.c, nil, Call{}
}

// wholeFloats returns the memory that begin needs for a call of this shape or a smaller one, with at most rows rows.
func (s *shape) wholeFloats(rows int) int {
	if s.Stored == nil {
		return 0
	}
	return min(s.M, rows) * s.N
}

// block is the memory in which tiles of C are computed: rows ld apart, from a row and a column on.
type block struct {
	c            []float32
	ld, row, col int
}

func (b *block) at(row, col int) unsafe.Pointer {
	return floats(b.c, (row-b.row)*b.ld+col-b.col)
}

// blockOf returns the block in which a task computes rows [m0,m1) and columns [n0,n1): in C, or in scratch memory.
func (p *panels) blockOf(s *scratch, m0, m1, n0, n1 int) block {
	c := p.c
	if c.Stored == nil {
		return block{c: c.C, ld: c.LDC}
	}
	b := block{s.c.alloc((m1 - m0) * (n1 - n0)), n1 - n0, m0, n0}
	if c.Accumulate {
		c.initBlock(b.c, b.ld, m0, m1, n0, n1)
	}
	return b
}

// blockFloats returns the maximum memory that blockOf needs for a call.
func (k *kernels) blockFloats(c *Call, cols int) int {
	if c.Stored == nil {
		return 0
	}
	cols = min(cols, upTo(c.N, k.nr))
	return min(c.M*cols, storedFloats+2*k.mr*cols)
}
