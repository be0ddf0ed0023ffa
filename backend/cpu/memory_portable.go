//go:build !unix

package cpu

import "unsafe"

// allocate allocates zeroed memory on Go's heap, in words for its alignment.
func allocate(bytes int) (*buffer, error) {
	if bytes == 0 {
		return &buffer{}, nil
	}
	words := make([]uint64, (bytes+7)/8)
	return &buffer{data: unsafe.Slice((*byte)(unsafe.Pointer(&words[0])), bytes)}, nil
}
