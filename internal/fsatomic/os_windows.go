//go:build windows

package fsatomic

import (
	"errors"
	"os"

	"golang.org/x/sys/windows"
)

// canRemoveOpen is false: an open file cannot be removed.
const canRemoveOpen = false

// lockAt is the offset of the locked byte, far past the end of any file. Locks
// are mandatory on Windows and would block readers and writers of the bytes
// they cover.
const lockAt = 1 << 30

// tryLock takes the exclusive lock of an open file if it is free. An error
// means that locks are not supported, as for folders.
func tryLock(f *os.File) (bool, error) {
	at := windows.Overlapped{OffsetHigh: lockAt}
	err := windows.LockFileEx(windows.Handle(f.Fd()), windows.LOCKFILE_EXCLUSIVE_LOCK|windows.LOCKFILE_FAIL_IMMEDIATELY, 0, 1, 0, &at)
	if errors.Is(err, windows.ERROR_LOCK_VIOLATION) || errors.Is(err, windows.ERROR_IO_PENDING) {
		return false, nil
	}
	return err == nil, err
}

func syncFile(path string) error {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// syncDir does nothing: NTFS logs changes of names itself.
func syncDir(string) error { return nil }
