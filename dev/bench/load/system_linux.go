package load

import (
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// hugeBuffer returns n bytes that start at a huge-page boundary, backed by huge pages if the system has any.
func hugeBuffer(n int) []byte {
	b, err := unix.Mmap(-1, 0, n+2*hugePage, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		return make([]byte, n)
	}
	skip := hugePage - int(uintptr(unsafe.Pointer(unsafe.SliceData(b)))%hugePage)
	b = b[skip : skip+n]
	_ = unix.Madvise(b[:n/hugePage*hugePage], unix.MADV_HUGEPAGE)
	return b
}

// opMapPopulate maps a file with all of its pages.
func opMapPopulate(t *task) (func() (func() error, error), error) {
	return func() (func() error, error) {
		data, err := mapped(t.file, unix.MAP_POPULATE)
		return func() error { return unix.Munmap(data) }, err
	}, nil
}

func mapped(path string, flags int) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	return unix.Mmap(int(f.Fd()), 0, int(info.Size()), unix.PROT_READ, unix.MAP_SHARED|flags)
}

// settle waits until all pending writes to a folder's disk are done.
func settle(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer f.Close()
	return unix.Syncfs(int(f.Fd()))
}

// warm makes the next n bytes that the system allocates resident. A virtual machine may have returned free memory to
// its host; each page then costs a fault there, four times the time of writing it. It uses at most half of the free
// memory.
func warm(n int64) {
	var info unix.Sysinfo_t
	if unix.Sysinfo(&info) == nil {
		n = min(n, int64(info.Freeram)*int64(info.Unit)/2)
	}
	b, err := unix.Mmap(-1, 0, int(n), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		return
	}
	defer unix.Munmap(b)
	_ = unix.Madvise(b, unix.MADV_HUGEPAGE)
	for at := 0; at < len(b); at += page {
		b[at] = 1
	}
}
