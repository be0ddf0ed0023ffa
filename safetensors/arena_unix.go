//go:build unix

package safetensors

import (
	"math"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// newArena reserves size bytes. Physical memory is allocated when pages are
// touched.
func newArena(size int64) (arena, error) {
	if size < 0 || size > math.MaxInt-hugePage {
		return arena{}, unix.ENOMEM
	}
	p, err := unix.MmapPtr(-1, 0, nil, uintptr(size)+hugePage, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		return arena{}, os.NewSyscallError("mmap", err)
	}
	all := unsafe.Slice((*byte)(p), size+hugePage)
	skip := int64(-uintptr(unsafe.Pointer(unsafe.SliceData(all))) % hugePage)
	a := arena{data: all[skip : skip+size : skip+size], region: region{data: all, mapped: true}}
	// The remainder uses small pages: a huge page would waste memory.
	_ = advise(a.data[:size-size%hugePage], AdviseHugePages)
	return a, nil
}
