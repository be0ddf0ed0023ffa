//go:build unix

package safetensors

import (
	"os"

	"golang.org/x/sys/unix"
)

// willNeedPiece is what Linux reads ahead for one call, whatever the machine.
const willNeedPiece = 512 << 10

// willNeed starts to read the bytes from begin to end, and does not wait.
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
