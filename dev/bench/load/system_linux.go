package load

import (
	"fmt"
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

// evict removes a file from the page cache.
func evict(path string) error {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := f.Sync(); err != nil { // dirty pages cannot be evicted
		return err
	}
	return unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED)
}

// cached returns the share of a file that is in the page cache.
func cached(path string) (float64, error) {
	data, err := mapped(path, 0)
	if err != nil {
		return 0, err
	}
	defer unix.Munmap(data)
	resident := make([]byte, (len(data)+page-1)/page)
	_, _, errno := unix.Syscall(unix.SYS_MINCORE, uintptr(unsafe.Pointer(unsafe.SliceData(data))), uintptr(len(data)), uintptr(unsafe.Pointer(unsafe.SliceData(resident))))
	if errno != 0 {
		return 0, fmt.Errorf("mincore: %w", errno)
	}
	n := 0
	for _, r := range resident {
		n += int(r & 1)
	}
	return float64(n) / float64(len(resident)), nil
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
