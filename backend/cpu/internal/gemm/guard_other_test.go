//go:build !unix

package gemm_test

import (
	"testing"
	"unsafe"
)

// guarded is memory of n bytes.
func guarded(_ testing.TB, n int) unsafe.Pointer {
	return unsafe.Pointer(unsafe.SliceData(make([]byte, n+8)))
}
