//go:build !unix && !windows

package safetensors

import (
	"errors"
	"math"
	"unsafe"
)

// newArena allocates size bytes.
func newArena(size int64) (arena, error) {
	if size < 0 || size > math.MaxInt-hugePage {
		return arena{}, errors.New("too much memory")
	}
	data := make([]byte, size+hugePage)
	skip := int64(-uintptr(unsafe.Pointer(unsafe.SliceData(data))) % hugePage)
	return arena{data: data[skip : skip+size : skip+size], region: region{data: data}}, nil
}
