package safetensors

import (
	"io"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// readVectors fills the buffers in order with the bytes from offset in the
// file. On failure it returns the file offset of the error.
func readVectors(f *os.File, into [][]byte, offset int64) (at int64, err error) {
	const most = 1024 // buffers per call, the limit of Linux
	defer runtime.KeepAlive(f)
	fd := int(f.Fd())
	for len(into) > 0 {
		n, err := unix.Preadv(fd, into[:min(len(into), most)], offset)
		switch {
		case err == unix.EINTR:
			continue
		case err != nil:
			return offset, os.NewSyscallError("preadv", err)
		case n == 0:
			return offset, io.ErrUnexpectedEOF
		}
		offset += int64(n)
		for n > 0 && n >= len(into[0]) {
			n -= len(into[0])
			into = into[1:]
		}
		if n > 0 {
			into[0] = into[0][n:]
		}
	}
	return 0, nil
}
