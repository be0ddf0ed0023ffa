//go:build unix

package fsatomic

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// canRemoveOpen is true: a file can be removed while it is open.
const canRemoveOpen = true

// tryLock takes the exclusive lock of an open file or folder if it is free. An
// error means that the file system does not support locks.
func tryLock(f *os.File) (bool, error) {
	for {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		switch {
		case err == nil:
			return true, nil
		case errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.EWOULDBLOCK), errors.Is(err, unix.EACCES):
			return false, nil
		default:
			return false, err
		}
	}
}

func syncFile(path string) error { return syncDir(path) }

// syncDir flushes the names in a folder to disk.
func syncDir(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	err = f.Sync()
	// Some file systems (FUSE, SMB) cannot sync a folder and return these
	// errors.
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOTSUP) {
		err = nil
	}
	return errors.Join(err, f.Close())
}
