//go:build unix

package safetensors

import (
	"errors"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// openFlags prevents the open of a FIFO from waiting for a writer.
const openFlags = os.O_RDONLY | unix.O_NONBLOCK

func mapFile(f *os.File, size int) (region, error) {
	p, err := mapAligned(f, uintptr(size))
	if err != nil {
		return region{}, &os.PathError{Op: "mmap", Path: f.Name(), Err: err}
	}
	return region{data: unsafe.Slice((*byte)(p), size), mapped: true, path: f.Name()}, nil
}

// mapAligned maps a file. A file of at least one huge page is mapped at a
// multiple of hugePage, which the kernel needs to map huge pages of the page
// cache as such.
func mapAligned(f *os.File, size uintptr) (unsafe.Pointer, error) {
	if size < hugePage || adviceHugePages < 0 {
		return unix.MmapPtr(int(f.Fd()), 0, nil, size, unix.PROT_READ, unix.MAP_SHARED)
	}
	// Reserve unused addresses and map the file over their middle part.
	all, err := unix.MmapPtr(-1, 0, nil, size+hugePage, unix.PROT_NONE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		return nil, err
	}
	before := -uintptr(all) % hugePage
	p, err := unix.MmapPtr(int(f.Fd()), 0, unsafe.Add(all, before), size, unix.PROT_READ, unix.MAP_SHARED|unix.MAP_FIXED)
	if err != nil {
		return nil, errors.Join(err, unix.MunmapPtr(all, size+hugePage))
	}
	page := uintptr(os.Getpagesize())
	pages := (size + page - 1) &^ (page - 1)
	if before > 0 {
		err = unix.MunmapPtr(all, before)
	}
	if err == nil {
		err = unix.MunmapPtr(unsafe.Add(p, pages), hugePage-before)
	}
	if err != nil {
		return nil, errors.Join(err, unix.MunmapPtr(p, size))
	}
	return p, nil
}

func (r region) unmap() error {
	return unix.MunmapPtr(unsafe.Pointer(unsafe.SliceData(r.data)), uintptr(len(r.data)))
}

// isFault reports whether a system call failed because its buffer cannot be
// read.
func isFault(err error) bool { return errors.Is(err, unix.EFAULT) }
