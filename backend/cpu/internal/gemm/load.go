//go:build (amd64 || arm64) && !purego

package gemm

import (
	"unsafe"

	"github.com/lorafuse/lorafuse/tensor"
)

// load is the element of the given type at p.
func load(p unsafe.Pointer, elem Elem) float32 {
	switch elem {
	case BF16:
		return tensor.BF16ToFloat32(*(*uint16)(p))
	case F16:
		return tensor.F16ToFloat32(*(*uint16)(p))
	}
	return *(*float32)(p)
}
