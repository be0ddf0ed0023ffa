package vec

import "unsafe"

// Panel is a matrix of Count rows of Width elements, row j at Rows[j*Stride:].
type Panel struct {
	Rows                 []float32
	Stride, Width, Count int
}

// Dot sets dst[i*dstStride+j] to the inner product of vector i, at
// x[i*xStride:], and row j, for n vectors. It reads the rows once for several
// vectors; the result of a vector does not depend on the others.
func (p Panel) Dot(dst []float32, dstStride int, x []float32, xStride, n int) {
	if p.Count == 0 || n == 0 {
		return
	}
	p.check(x, xStride, dst, dstStride, n)
	if p.Width == 0 {
		for i := range n {
			clear(dst[i*dstStride:][:p.Count])
		}
		return
	}
	p.each(&active.dotRows, x, xStride, dst, dstStride, n)
}

// AddTo adds Σ w[i*wStride+j]·row j, in ascending order of j, to vector i, at
// dst[i*dstStride:], for n vectors.
func (p Panel) AddTo(dst []float32, dstStride int, w []float32, wStride, n int) {
	if p.Count == 0 || n == 0 || p.Width == 0 {
		return
	}
	p.check(dst, dstStride, w, wStride, n)
	p.each(&active.addRows, dst, dstStride, w, wStride, n)
}

// check panics if a slice is too short: the kernels take pointers.
func (p Panel) check(vectors []float32, vectorStride int, scalars []float32, scalarStride, n int) {
	_ = p.Rows[:(p.Count-1)*p.Stride+p.Width]
	_ = vectors[:(n-1)*vectorStride+p.Width]
	_ = scalars[:(n-1)*scalarStride+p.Count]
}

// panelKernel works on some vectors x with their scalars p, one per row.
type panelKernel func(x *float32, xStride int, p *float32, pStride int, rows *float32, stride, width, count int)

// panelKernels holds kernels for 1, 2 and 4 vectors at a time. Only the first
// is required.
type panelKernels [3]panelKernel

// each calls the kernels for n vectors, as many at a time as possible.
func (p Panel) each(k *panelKernels, x []float32, xStride int, scalars []float32, scalarStride, n int) {
	for i := 0; i < n; {
		size := len(k) - 1
		for k[size] == nil || i+1<<size > n {
			size--
		}
		k[size](&x[i*xStride], xStride, &scalars[i*scalarStride], scalarStride, &p.Rows[0], p.Stride, p.Width, p.Count)
		i += 1 << size
	}
}

func portableDotRows(x *float32, _ int, p *float32, _ int, rows *float32, stride, width, count int) {
	dst, vector := unsafe.Slice(p, count), unsafe.Slice(x, width)
	for j := range dst {
		dst[j] = portableDot(vector, row(rows, j, stride, width))
	}
}

func portableAddRows(x *float32, _ int, p *float32, _ int, rows *float32, stride, width, count int) {
	vector := unsafe.Slice(x, width)
	for j, a := range unsafe.Slice(p, count) {
		portableAxpy(vector, row(rows, j, stride, width), a)
	}
}

func row(rows *float32, j, stride, width int) []float32 {
	return unsafe.Slice((*float32)(unsafe.Add(unsafe.Pointer(rows), 4*j*stride)), width)
}
