package safetensors

import (
	"io"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// openDirect opens a file for reads that leave nothing in the cache. What is in
// it already comes from there.
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
	// Other reads are done, too, but by way of the cache.
	return f, alignment{offset: pageAlign, memory: pageAlign}, nil
}

// readDirect fills memory, which is aligned as the offset is, up to the end of
// the file. It says how much it could read.
func readDirect(f *os.File, memory []byte, offset int64, _ alignment) (n int64, err error) {
	got, err := f.ReadAt(memory, offset)
	if err == io.EOF {
		err = nil
	}
	return int64(got), err
}
