package safetensors

import (
	"math"
	"os"
	"unsafe"

	"golang.org/x/sys/windows"
)

// newArena reserves size bytes as a file mapping backed by memory, so that it
// is freed like a mapped file. Large pages would need a privilege.
func newArena(size int64) (arena, error) {
	if size < 0 || size > math.MaxInt-hugePage {
		return arena{}, windows.ERROR_NOT_ENOUGH_MEMORY
	}
	all := uint64(size) + hugePage
	handle, err := windows.CreateFileMapping(windows.InvalidHandle, nil, windows.PAGE_READWRITE, uint32(all>>32), uint32(all), nil)
	if err != nil {
		return arena{}, os.NewSyscallError("CreateFileMapping", err)
	}
	defer windows.CloseHandle(handle) // the view keeps the mapping open
	address, err := windows.MapViewOfFile(handle, windows.FILE_MAP_READ|windows.FILE_MAP_WRITE, 0, 0, uintptr(all))
	if err != nil {
		return arena{}, os.NewSyscallError("MapViewOfFile", err)
	}
	pointer := *(*unsafe.Pointer)(unsafe.Pointer(&address)) // see mapFile
	data := unsafe.Slice((*byte)(pointer), int(all))
	skip := int64(-address % hugePage)
	return arena{data: data[skip : skip+size : skip+size], region: region{data: data, mapped: true}}, nil
}
