//go:build cuda && linux

package driver

// #include <cuda.h>
import "C"

import (
	"unsafe"

	"gorgonia.org/cu"
)

// cu's handles are structs of one field, the driver's own handle; only that of
// a stream can be read from outside of cu.
func _() {
	const pointer = unsafe.Sizeof(uintptr(0))
	var size [1]struct{}
	_ = size[unsafe.Sizeof(cu.Function{})-pointer]
	_ = size[unsafe.Sizeof(cu.Stream{})-pointer]
	_ = size[unsafe.Sizeof(cu.Event{})-pointer]
	_ = size[unsafe.Sizeof(cu.CUContext{})-pointer]
}

func stream(s cu.Stream) C.CUstream       { return *(*C.CUstream)(unsafe.Pointer(&s)) }
func function(f cu.Function) C.CUfunction { return *(*C.CUfunction)(unsafe.Pointer(&f)) }
func event(e cu.Event) C.CUevent          { return *(*C.CUevent)(unsafe.Pointer(&e)) }
