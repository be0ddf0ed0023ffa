//go:build !unix

package gemm_test

import (
	"unsafe"
)

// guarded is memory of n bytes.
func guarded(_ cleaner, n int) unsafe.Pointer {
	return unsafe.Pointer(unsafe.SliceData(make([]byte, n+8)))
}
