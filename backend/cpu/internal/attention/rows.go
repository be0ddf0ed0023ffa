package attention

import (
	"unsafe"

	"github.com/lorafuse/lorafuse/backend/cpu/internal/gemm"
	"github.com/lorafuse/lorafuse/tensor"
)

// Rows is a row-major matrix: row i starts at Data[i*Stride] or, for bfloat16, at element i*Stride of BF16. Backward
// writes float32.
type Rows struct {
	Data   []float32
	BF16   []byte // instead of Data
	Stride int    // elements from one row to the next
}

func (r Rows) elements() int {
	if r.BF16 != nil {
		return len(r.BF16) / 2
	}
	return len(r.Data)
}

// from returns the data from column col of row i on.
func (r Rows) from(i, col int) []float32 { return r.Data[i*r.Stride+col:] }

// bytes returns n bfloat16 elements from column col of row i on.
func (r Rows) bytes(i, col, n int) []byte {
	at := 2 * (i*r.Stride + col)
	return r.BF16[at : at+2*n]
}

// matrix returns the matrix from column col of row i on, for multiplications, which read both types in place.
func (r Rows) matrix(i, col int) gemm.Matrix {
	if r.BF16 == nil {
		return gemm.Of(r.from(i, col), r.Stride)
	}
	b := r.BF16[2*(i*r.Stride+col):]
	return gemm.Matrix{Data: unsafe.Pointer(unsafe.SliceData(b)), Elem: gemm.BF16, Stride: r.Stride}
}

// row returns n elements from column col of row i on: in place, or widened to dst.
func (r Rows) row(dst []float32, i, col, n int) []float32 {
	if r.BF16 == nil {
		return r.from(i, col)[:n]
	}
	// The lengths fit, and the type is a number.
	_ = tensor.ToFloat32(dst[:n], r.bytes(i, col, n), tensor.BF16)
	return dst[:n]
}

// storeBF16 rounds x to bfloat16 and stores it at row i, column col. For a float32 matrix it does nothing, since x was
// computed in place.
func (r Rows) storeBF16(x []float32, i, col int) {
	if r.BF16 != nil {
		_ = tensor.FromFloat32(r.bytes(i, col, len(x)), x, tensor.BF16)
	}
}

// clear makes n elements of row i 0.
func (r Rows) clear(i, n int) {
	if r.BF16 == nil {
		clear(r.from(i, 0)[:n])
		return
	}
	clear(r.bytes(i, 0, n))
}

// outRow returns the memory in which row r of a tile is computed for head h, query i: in place, or in the worker's
// memory.
func (e *run) outRow(w *worker, i, r, h int) []float32 {
	if d := e.HeadDim; e.o.BF16 != nil {
		return w.out[r*d:][:d]
	}
	return e.o.from(i, h*e.HeadDim)[:e.HeadDim]
}

// storedFloats returns a worker's memory for bfloat16 values: a tile of the result, and a block of keys for decoding.
func (e *run) storedFloats(headDim int) int {
	if !e.gemm.Widens() {
		return 0
	}
	return tileQueries*headDim + max(wideFloats, wideRows*decodeHeads*headDim)
}

// widenWith allocates that memory for the workers.
func (e *run) widenWith(headDim int) {
	n := e.storedFloats(headDim)
	if n == 0 {
		return
	}
	for i := range e.workers {
		w := &e.workers[i]
		w.stored = grow(w.stored, n)
		w.out, w.wide = w.stored[:tileQueries*headDim], w.stored[tileQueries*headDim:]
		w.query = w.out[decodeHeads*headDim:] // decoding has as many rows of out
	}
}
