package safetensors

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// copyBelow is the size from which on a piece is better not copied.
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

// populate brings the mapped pages that data lies in into memory, all at once,
// so that write(2) does not meet them one fault after the other: that takes a
// third of the time off. Copying in the kernel (copy_file_range, sendfile) is no
// faster than the faults. A page that cannot be had is found by the write.
func populate(data []byte) {
	const least = 64 << 10 // what one fault brings in anyway
	if len(data) > least {
		mapPages(data)
	}
}
