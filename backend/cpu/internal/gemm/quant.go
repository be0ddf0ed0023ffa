package gemm

import (
	"github.com/lorafuse/lorafuse/internal/quant"
	"github.com/lorafuse/lorafuse/tensor"
)

// Only the second operand of a multiplication may be quantised. It is widened a few rows at a time on the way into
// panels, or multiplied in place if the first operand has few rows: a full matrix of floats never exists.

const quantBlock = tensor.QuantBlock

// nf4Code and fp4Code are the values of the 4-bit codes.
var nf4Code, fp4Code = quant.Code(tensor.NF4), quant.Code(tensor.FP4)

// Quantized reports whether e is a type of weights in blocks of 64 elements, as
// package quant lays them out.
func (e Elem) Quantized() bool { return e >= Q8 && e <= FP4 }

// blockBytes returns the size of a block.
func (e Elem) blockBytes() int { return e.dtype().BlockBytes() }

func (e Elem) dtype() tensor.DType {
	switch e {
	case Q8:
		return tensor.Q8
	case NF4:
		return tensor.NF4
	case FP4:
		return tensor.FP4
	}
	return tensor.Invalid
}

// code returns the table of a 4-bit type.
func (e Elem) code() *[16]float32 {
	if e == FP4 {
		return &fp4Code
	}
	return &nf4Code
}

// inBlocks reports whether every row of m, up to k elements, consists of whole blocks.
func (m Matrix) inBlocks(k int) bool { return m.Stride%quantBlock == 0 && k%quantBlock == 0 }

// widen writes the elements [first, first+len(dst)) of a quantised m, counted
// through its rows. whole has room for a block.
func (k *kernels) widen(dst, whole []float32, m Matrix, first int) {
	size := m.Elem.blockBytes()
	for len(dst) > 0 {
		src, skip := at(m.Data, first/quantBlock*size), first%quantBlock
		if n := len(dst) / quantBlock; skip == 0 && n > 0 {
			k.rows.unblock(floats(dst, 0), src, m.Elem, n)
			dst, first = dst[n*quantBlock:], first+n*quantBlock
			continue
		}
		k.rows.unblock(floats(whole, 0), src, m.Elem, 1)
		n := copy(dst, whole[skip:quantBlock])
		dst, first = dst[n:], first+n
	}
}

// widened returns memory for n widened elements and for a block.
func (s *scratch) widened(n int) (wide, whole []float32) {
	wide = s.wide.alloc(n + quantBlock)
	return wide, wide[n:]
}

// widenRows is the number of rows of B that are widened or filtered at a time before they are packed along k: an even
// number, since pairs are packed as one word.
const widenRows = 32

// packComputed is packCols for rows [first,last) of op(B) of one pair that is quantised or has a filter: it computes
// a few rows at a time and packs them. A column of the panels has step floats; these rows start at float begin of it.
func (p *panels) packComputed(s *scratch, b []float32, pair *Pair, begin, step, first, last, n0, n1 int) {
	nr := p.kern.nr
	if pair.B.Trans { // a panel is nr rows of B
		ld := ceil(last-first, 16) * 16
		wide, whole := s.widened(nr * ld)
		for n := n0; n < n1; n += nr {
			lanes := min(nr, n1-n)
			if pair.FilterB != nil {
				filtered(wide, ld, pair.FilterB, &pair.B, n, n+lanes, first, last)
			} else {
				for i := range lanes {
					p.job.k.widen(wide[i*ld:][:last-first], whole, pair.B, (n+i)*pair.B.Stride+first)
				}
			}
			m := Of(wide, ld).T()
			p.packB(b[(n-n0)*step+begin*nr:], pair, &m, step, 0, last-first, 0, lanes)
		}
		return
	}
	ld := ceil(n1-n0, 16) * 16
	wide, whole := s.widened(widenRows * ld)
	for t := first; t < last; t += widenRows {
		rows := min(widenRows, last-t)
		if pair.FilterB != nil {
			filtered(wide, ld, pair.FilterB, &pair.B, t, t+rows, n0, n1)
		} else {
			for i := range rows {
				p.job.k.widen(wide[i*ld:][:n1-n0], whole, pair.B, (t+i)*pair.B.Stride+n0)
			}
		}
		at, m := begin+p.kern.columnFloats(pair, (t-first)/p.kern.pairSize), Of(wide, ld)
		p.packB(b[at*nr:], pair, &m, step, 0, rows, 0, n1-n0)
	}
}

// longRows is the number of rows of blocks that are multiplied with a long row of A at a time.
const longRows = 4

// dotBlocks computes dots for rows of B that are whole blocks; long is set for one long row of A.
func (f *fewRows) dotBlocks(p *Pair, a operand, n0, n1 int, s *scratch, long bool) {
	c := f.c
	out := s.a.alloc(rowsFew * rowsDots)
	ldb := p.B.Stride / quantBlock * p.B.Elem.blockBytes()
	for n := n0; n < n1; n += rowsDots {
		cols := min(rowsDots, n1-n)
		if long && cols%longRows == 0 {
			f.k.rows.dotBlocksLong(p.K/quantBlock, a.data, at(p.B.Data, n*ldb), p.B.Elem, ldb, cols, floats(out, 0))
			f.add(p.Alpha, out, rowsDots, n, cols)
			continue
		}
		for i := 0; i < c.M; i += f.k.rows.dotRows {
			rows := min(f.k.rows.dotRows, c.M-i)
			f.k.rows.dotBlocks(rows, p.K/quantBlock, at(a.data, i*a.row), a.row/F32.Size(), at(p.B.Data, n*ldb), p.B.Elem, ldb, cols,
				floats(out, i*rowsDots), rowsDots)
		}
		f.add(p.Alpha, out, rowsDots, n, cols)
	}
}

// dotWidened computes dots for rows that start or end inside a block: each is widened separately.
func (f *fewRows) dotWidened(p *Pair, a operand, n0, n1 int, s *scratch) {
	c := f.c
	out := s.a.alloc(rowsFew)
	wide, whole := s.widened(p.K)
	for n := n0; n < n1; n++ {
		f.k.widen(wide[:p.K], whole, p.B, n*p.B.Stride)
		for i := 0; i < c.M; i += f.k.rows.dotRows {
			rows := min(f.k.rows.dotRows, c.M-i)
			f.k.rows.dots(rows, p.K, at(a.data, i*a.row), a.row/F32.Size(), floats(wide, 0), F32, 4*p.K, 1, floats(out, i), 1)
		}
		f.add(p.Alpha, out, 1, n, 1)
	}
}

// add adds alpha times the columns of out, with row stride ld, to columns [n,n+cols) of C.
func (f *fewRows) add(alpha float32, out []float32, ld, n, cols int) {
	for i := range f.c.M {
		row := f.c.C[i*f.c.LDC+n:][:cols]
		for j, v := range out[i*ld:][:len(row)] {
			row[j] += alpha * v
		}
	}
}

// directWidened computes direct for a quantised B, widening widenRows rows at a time.
func (f *fewRows) directWidened(p *Pair, a operand, n0, n1 int, s *scratch) {
	c := f.c
	ld := ceil(n1-n0, 16) * 16
	wide, whole := s.widened(widenRows * ld)
	for t := 0; t < p.K; t += widenRows {
		k := min(widenRows, p.K-t)
		for i := range k {
			f.k.widen(wide[i*ld:][:n1-n0], whole, p.B, (t+i)*p.B.Stride+n0)
		}
		for i := 0; i < c.M; i += f.k.rows.directRows {
			f.k.rows.direct(min(f.k.rows.directRows, c.M-i), k, at(a.data, i*a.row+t*a.col), a.row, a.col,
				floats(wide, 0), F32, 4*ld, floats(c.C, i*c.LDC+n0), c.LDC, n1-n0, p.Alpha)
		}
	}
}
