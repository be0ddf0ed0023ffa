//go:build unix

package safetensors

import (
	"os"

	"golang.org/x/sys/unix"
)

// willNeedPiece is the number of bytes that Linux reads ahead per call, on any
// machine.
const willNeedPiece = 512 << 10

// willNeed starts reading the bytes from begin to end, without waiting.
func (m *mapping) willNeed(begin, end int64) error {
	if !m.region.mapped {
		return nil
	}
	for begin &^= pageSize - 1; begin < end; begin += willNeedPiece {
		if err := unix.Madvise(m.data[begin:min(begin+willNeedPiece, end)], unix.MADV_WILLNEED); err != nil {
			return os.NewSyscallError("madvise", err)
		}
	}
	return nil
}
