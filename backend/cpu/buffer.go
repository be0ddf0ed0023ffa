package cpu

import (
	"fmt"
	"unsafe"

	"github.com/lorafuse/lorafuse/backend"
)

// buffer is host memory: our own, or bytes that somebody else keeps.
type buffer struct {
	data     []byte
	keep     any
	readOnly bool
	brief    bool // see weights.Data
	freed    bool
	parent   *buffer // what it is a part of, or nil
	release  func()

	copies     []copied // for products, of an imported buffer
	dropCopies func()   // nil if there are none
}

// Size returns the number of bytes.
func (b *buffer) Size() int { return len(b.data) }

// Free releases the memory. Freeing twice does nothing.
func (b *buffer) Free() {
	if b.freed {
		return
	}
	b.freed = true
	if b.dropCopies != nil {
		b.dropCopies()
	}
	if b.release != nil {
		b.release()
	}
	b.data, b.keep = nil, nil
}

func bytesOf(b backend.Buffer) ([]byte, error) {
	c, ok := b.(*buffer)
	if !ok {
		return nil, fmt.Errorf("cpu: a %T is not a buffer of this backend", b)
	}
	if c.freed || c.parent != nil && c.parent.freed {
		return nil, fmt.Errorf("cpu: buffer: %w", backend.ErrClosed)
	}
	return c.data, nil
}

// view returns the first n elements of b as a slice of T. Buffers are page-aligned, arena values are aligned to 64
// bytes, and tensors of files as their header defines; for files the caller has checked the alignment.
func view[T any](b []byte, n int) []T {
	if n == 0 {
		return nil
	}
	var t T
	_ = b[n*int(unsafe.Sizeof(t))-1]
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(b))), n)
}

func pointer(b []byte) unsafe.Pointer { return unsafe.Pointer(unsafe.SliceData(b)) }
