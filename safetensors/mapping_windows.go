package safetensors

import (
	"errors"
	"os"
	"unsafe"

	"golang.org/x/sys/windows"
)

const openFlags = os.O_RDONLY

func mapFile(f *os.File, size int) (region, error) {
	handle, err := windows.CreateFileMapping(windows.Handle(f.Fd()), nil, windows.PAGE_READONLY, 0, 0, nil)
	if err != nil {
		return region{}, &os.PathError{Op: "CreateFileMapping", Path: f.Name(), Err: err}
	}
	defer windows.CloseHandle(handle) // the view keeps the mapping open
	address, err := windows.MapViewOfFile(handle, windows.FILE_MAP_READ, 0, 0, uintptr(size))
	if err != nil {
		return region{}, &os.PathError{Op: "MapViewOfFile", Path: f.Name(), Err: err}
	}
	// Convert through a pointer to address: vet reports every conversion of an
	// integer to a pointer, but this memory is not managed by Go.
	pointer := *(*unsafe.Pointer)(unsafe.Pointer(&address))
	return region{data: unsafe.Slice((*byte)(pointer), size), mapped: true, path: f.Name()}, nil
}

func (r region) unmap() error {
	return windows.UnmapViewOfFile(uintptr(unsafe.Pointer(unsafe.SliceData(r.data))))
}

// isFault reports whether a system call failed because its buffer cannot be
// read.
func isFault(err error) bool {
	return errors.Is(err, windows.ERROR_NOACCESS) || errors.Is(err, windows.ERROR_SWAPERROR)
}
