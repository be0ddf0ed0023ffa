package cpu

import (
	"unsafe"

	"github.com/lorafuse/lorafuse/backend/cpu/internal/gemm"
	"github.com/lorafuse/lorafuse/tensor"
)

// A preemptible run splits large matrix multiplications by columns, so that other programs wait for one piece and not
// for the whole multiplication.

var pieceFlops = 1 << 28 // per piece: some milliseconds on two cores; smaller in tests

const (
	pieceCols  = 256 // minimum width of a piece, at which packing A again costs little
	pieceRows  = 8   // that it has more of: fewer wait for memory, and are summed in an order by their columns
	pieceAlign = 64  // of their first columns: whole blocks, and whole groups of all kernels
)

// multiply computes a matrix multiplication, in pieces if the run is preemptible. The result is bit-equal to one
// piece: the order of summation depends neither on the position of an element nor on the number of columns from 65
// on.
func (r *run) multiply(c *gemm.Call) {
	if hasBlocks(c) {
		r.multiplyBlocks(c)
		return
	}
	n := r.columnRanges(c)
	if n < 2 {
		r.dev.gemm.Run(c)
		return
	}
	for i := range n {
		r.rest()
		to := (i + 1) * c.N / n / pieceAlign * pieceAlign
		if i == n-1 {
			to = c.N
		}
		r.dev.gemm.Run(r.cut.columns(c, i*c.N/n/pieceAlign*pieceAlign, to))
	}
}

// multiplyAll computes products that do not depend on each other.
func (r *run) multiplyAll(calls []*gemm.Call) {
	large := false
	for _, c := range calls {
		large = large || r.columnRanges(c) > 1 || hasBlocks(c)
	}
	if !large {
		r.dev.gemm.RunAll(calls)
		return
	}
	for _, c := range calls {
		r.multiply(c)
	}
}

// columnRanges returns the number of pieces of a multiplication, 1 if the run is not preemptible.
func (r *run) columnRanges(c *gemm.Call) int {
	if r.rest == nil || c.M <= pieceRows || c.Filter != nil {
		return 1
	}
	flops := 0
	for i := range c.Pairs {
		p := &c.Pairs[i]
		if p.Alpha == 0 || p.K == 0 {
			continue
		}
		if p.Ready != nil || p.FilterB != nil || p.A.Trans || p.B.Elem.Quantized() && p.B.Stride%tensor.QuantBlock != 0 {
			return 1
		}
		flops += 2 * c.M * c.N * p.K
	}
	return max(1, min(flops/pieceFlops, c.N/pieceCols))
}

// piece is a part of a multiplication.
type piece struct {
	call   gemm.Call
	stored gemm.Stored
}

// columns returns the multiplication for columns [from,to).
func (p *piece) columns(c *gemm.Call, from, to int) *gemm.Call {
	pairs := append(p.call.Pairs[:0], c.Pairs...)
	p.call = *c
	p.call.N, p.call.Pairs = to-from, pairs
	if c.Bias != nil {
		p.call.Bias = c.Bias[from:]
	}
	if c.Stored == nil {
		p.call.C = c.C[from:]
	} else {
		p.stored = gemm.Stored{Data: unsafe.Add(c.Stored.Data, from*tensor.BF16.Size()), From: columns(c.Stored.From, from)}
		p.call.Stored = &p.stored
	}
	for i := range pairs {
		pairs[i].B = columns(pairs[i].B, from)
	}
	return &p.call
}

// columns returns op(M) without the first from columns.
func columns(m gemm.Matrix, from int) gemm.Matrix {
	if m.Data == nil {
		return m
	}
	n := from // elements of M before them
	if m.Trans {
		n *= m.Stride
	}
	m.Data = unsafe.Add(m.Data, dtypeOf(m.Elem).Bytes(n))
	return m
}

// dtypeOf returns the dtype of a matrix's elements.
func dtypeOf(e gemm.Elem) tensor.DType {
	switch e {
	case gemm.F16:
		return tensor.F16
	case gemm.BF16:
		return tensor.BF16
	case gemm.Q8:
		return tensor.Q8
	case gemm.NF4:
		return tensor.NF4
	case gemm.FP4:
		return tensor.FP4
	}
	if e >= gemm.Foreign {
		return tensor.Q4_0 + tensor.DType(e-gemm.Foreign)
	}
	return tensor.F32
}
