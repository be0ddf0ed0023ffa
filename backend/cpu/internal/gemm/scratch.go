package gemm

import "unsafe"

// scratch is the memory that one goroutine packs into.
type scratch struct {
	a, b buffer
	wide buffer // quantised weights, widened
	c    buffer // a block of C that is stored in fewer bits
}

// worker is the state of Serial on one worker.
type worker struct {
	scratch
	job *job
}

// buffer is memory that only grows. Its start is aligned to a cache line.
type buffer struct{ data []float32 }

// alloc returns n elements, followed by space for a vector store.
func (b *buffer) alloc(n int) []float32 {
	if len(b.data) < n {
		const lineFloats = 16
		// An eighth more, so that slowly growing shapes settle.
		size := n + n/8 + lineFloats
		raw := make([]float32, size+lineFloats)
		skip := int(-uintptr(unsafe.Pointer(&raw[0]))%64) / 4
		b.data = raw[skip:]
	}
	return b.data
}
