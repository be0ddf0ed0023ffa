package safetensors

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// preallocate reserves the space of a file: a full disk is found out before the
// work is done, and the file system need not look for room block by block.
func preallocate(f *os.File, size int64) error {
	if size <= 0 {
		return nil
	}
	for {
		err := unix.Fallocate(int(f.Fd()), 0, 0, size)
		switch {
		case err == nil, errors.Is(err, unix.EOPNOTSUPP), errors.Is(err, unix.ENOSYS):
			return nil // not every file system can
		case !errors.Is(err, unix.EINTR):
			return err
		}
	}
}
