package safetensors

import (
	"io"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// openDirect opens a file for reads that add nothing to the page cache. Pages
// that are already cached are read from there.
func openDirect(of *File) (*os.File, alignment, error) {
	f, err := reopen(of, openFlags)
	if err != nil {
		return nil, alignment{}, err
	}
	if _, err := unix.FcntlInt(f.Fd(), unix.F_NOCACHE, 1); err != nil {
		f.Close()
		return nil, alignment{}, os.NewSyscallError("fcntl F_NOCACHE", err)
	}
	runtime.KeepAlive(f)
	// Unaligned reads succeed, but go through the cache.
	return f, alignment{offset: pageAlign, memory: pageAlign}, nil
}

// readDirect fills memory from offset, up to the end of the file; both are
// equally aligned. It returns the number of bytes read.
func readDirect(f *os.File, memory []byte, offset int64, _ alignment) (n int64, err error) {
	got, err := f.ReadAt(memory, offset)
	if err == io.EOF {
		err = nil
	}
	return int64(got), err
}
