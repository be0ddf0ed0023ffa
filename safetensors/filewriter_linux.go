package safetensors

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// copyBelow is the size below which pieces are copied.
const copyBelow = 16 << 10

// writePieces writes the pieces, or some of them, in one call.
func writePieces(f *os.File, pieces [][]byte) (int, error) {
	for {
		n, err := unix.Writev(int(f.Fd()), pieces)
		if !errors.Is(err, unix.EINTR) {
			return max(n, 0), err
		}
	}
}

// populate maps all pages of data at once, so that write(2) does not fault on
// them one by one; this saves a third of the time. Copying in the kernel
// (copy_file_range, sendfile) is no faster than the faults. Pages that cannot be
// read are left for the write to report.
func populate(data []byte) {
	const least = 64 << 10 // one fault maps this much anyway
	if len(data) > least {
		mapPages(data)
	}
}
