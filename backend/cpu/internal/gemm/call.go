package gemm

import (
	"fmt"
	"unsafe"
)

// Elem is the type of a matrix's elements in memory.
type Elem uint8

// The element types that are read; arithmetic is float32.
const (
	F32  Elem = iota
	F16       // IEEE 754 half precision
	BF16      // the upper half of a float32
	Q8        // quantised types, for B alone; see package quant
	NF4
	FP4

	// Foreign and the following numbers are types that callers widen before they run a call.
	Foreign
)

// Size returns the number of bytes of an element, 0 for the quantised types.
func (e Elem) Size() int {
	switch e {
	case F32:
		return 4
	case F16, BF16:
		return 2
	}
	return 0
}

// bits returns the approximate number of bits per element in memory.
func (e Elem) bits() int {
	if e.Quantized() {
		return 8 * e.blockBytes() / quantBlock
	}
	return 8 * e.Size()
}

// String returns the name of the type as safetensors writes it.
func (e Elem) String() string {
	switch e {
	case F32:
		return "F32"
	case F16:
		return "F16"
	case BF16:
		return "BF16"
	}
	if e.Quantized() {
		return e.dtype().String()
	}
	return fmt.Sprintf("Elem(%d)", uint8(e))
}

// Matrix is op(M) for a matrix M in row-major order: M itself, or its
// transpose. Its size follows from its place in a Pair.
type Matrix struct {
	Data   unsafe.Pointer // row 0, column 0 of M; not retained. If M is quantised, it is the start of a block
	Elem   Elem
	Stride int  // elements from one row of M to the next, at least its columns
	Trans  bool // op(M) = Mᵀ
}

// Of returns float32 elements as a matrix of the given stride.
func Of(data []float32, stride int) Matrix {
	return Matrix{Data: unsafe.Pointer(unsafe.SliceData(data)), Stride: stride}
}

// T returns the transpose of m.
func (m Matrix) T() Matrix {
	m.Trans = !m.Trans
	return m
}

// steps returns the distances in bytes between rows of op(M) and between columns.
func (m Matrix) steps() (row, col int) {
	row, col = m.Stride*m.Elem.Size(), m.Elem.Size()
	if m.Trans {
		row, col = col, row
	}
	return row, col
}

// Pair is one product Alpha·op(A)·op(B) with op(A) [M,K] and op(B) [K,N].
// With Alpha 0 (the zero value) or K 0 it adds nothing and is not read.
type Pair struct {
	A, B  Matrix
	K     int
	Alpha float32
	Ready *Prepacked // B as returned by Prepack, or nil; B is required in any case

	FilterA, FilterB Filter // of the elements of A and B, or nil; see Engine.Filters
}

// Call is one computation C = (C +) Bias + Σ Pairs.
type Call struct {
	M, N       int
	C          []float32 // [M,N], row i at C[i*LDC:]; must not overlap what is read
	Stored     *Stored   // destination of C as bfloat16, with its initial value; C is then nil
	LDC        int       // elements between rows of C, at least N
	Accumulate bool      // add to C instead of overwriting it
	Bias       []float32 // [N], added to every row; nil for none
	Filter     Filter    // of the elements of C at the end, or nil
	Invariant  bool      // the bits of a row do not depend on M; see doc.go
	Pairs      []Pair
}

// transposed is the products of Cᵀ, without a place for them; its pairs take that of pairs.
func (c *Call) transposed(pairs []Pair) Call {
	pairs = pairs[:0]
	for _, p := range c.Pairs {
		pairs = append(pairs, Pair{A: p.B.T(), B: p.A.T(), K: p.K, Alpha: p.Alpha, FilterA: p.FilterB, FilterB: p.FilterA})
	}
	return Call{M: c.N, N: c.M, Pairs: pairs}
}

// check panics if the slices of c cannot hold its shape. The kernels do not
// check bounds.
func (c *Call) check() {
	if c.M < 0 || c.N < 0 {
		panic(fmt.Sprintf("gemm: negative shape [%d,%d]", c.M, c.N))
	}
	if c.M == 0 || c.N == 0 {
		return
	}
	if c.M > 1 && c.LDC < c.N {
		panic(fmt.Sprintf("gemm: rows of C are %d apart, want at least N = %d", c.LDC, c.N))
	}
	if want := (c.M-1)*c.LDC + c.N; c.Stored == nil && len(c.C) < want {
		panic(fmt.Sprintf("gemm: C has %d elements, [%d,%d] with stride %d needs %d", len(c.C), c.M, c.N, c.LDC, want))
	}
	if c.Bias != nil && len(c.Bias) < c.N {
		panic(fmt.Sprintf("gemm: bias has %d elements, want N = %d", len(c.Bias), c.N))
	}
	for i := range c.Pairs {
		p := &c.Pairs[i]
		if p.idle() {
			continue
		}
		if p.K < 0 {
			panic(fmt.Sprintf("gemm: pair %d has K = %d", i, p.K))
		}
		checkMatrix(i, "A", p.A, c.M, p.K)
		checkMatrix(i, "B", p.B, p.K, c.N)
	}
}

// checkMatrix panics if m cannot be op(M) of the given size.
func checkMatrix(pair int, name string, m Matrix, rows, cols int) {
	if m.Trans {
		rows, cols = cols, rows
	}
	switch {
	case m.Data == nil:
		panic(fmt.Sprintf("gemm: %s of pair %d has no data", name, pair))
	case m.Elem > FP4 || m.Elem.Quantized() && name != "B":
		panic(fmt.Sprintf("gemm: %s of pair %d has elements %v", name, pair, m.Elem))
	case rows > 1 && m.Stride < cols:
		panic(fmt.Sprintf("gemm: rows of %s of pair %d are %d apart, want at least %d", name, pair, m.Stride, cols))
	}
}

// readsAlong reports whether every B has its k side by side, as x·Wᵀ with the weights
// of a checkpoint: columns of it are read front to back.
func (c *Call) readsAlong() bool {
	for i := range c.Pairs {
		if p := &c.Pairs[i]; !p.idle() && !p.B.Trans {
			return false
		}
	}
	return true
}

// hasFilters reports whether an operand has a filter.
func (c *Call) hasFilters() bool {
	for i := range c.Pairs {
		if p := &c.Pairs[i]; p.FilterA != nil || p.FilterB != nil {
			return true
		}
	}
	return false
}

// idle reports whether the pair adds nothing.
func (p *Pair) idle() bool { return p.K == 0 || p.Alpha == 0 }
