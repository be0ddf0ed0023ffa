package safetensors

import (
	"io"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// readVectors fills stretches of memory, one after the other, with what follows
// offset in the file. It says where it has failed.
func readVectors(f *os.File, into [][]byte, offset int64) (at int64, err error) {
	const most = 1024 // stretches in one call, as Linux has it
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
