package fsatomic

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// ErrLockUnsupported is the error of [Lock] on file systems without locks.
var ErrLockUnsupported = errors.New("the file system has no file locks")

// A FileLock is held by at most one owner among all processes of the machine.
type FileLock struct {
	f      *os.File
	remove bool // remove the file on Unlock
}

// Lock waits until it holds the lock on the file path, which it creates with
// its parent folders if missing. The lock ends with Unlock or with the process,
// however that ends; the file stays. The lock is advisory and compatible with
// flock(2) and Python's filelock.
func Lock(ctx context.Context, path string) (*FileLock, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
		return nil, err
	}
	wait := 5 * time.Millisecond
	for {
		f, locked, err := acquire(path)
		if err != nil {
			return nil, err
		}
		if locked {
			return &FileLock{f: f}, nil
		}
		f.Close()
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("waiting for the lock %s: %w", path, context.Cause(ctx))
		case <-time.After(wait):
			wait = min(2*wait, 200*time.Millisecond)
		}
	}
}

// acquire opens the lock file and locks it if it is free.
func acquire(path string) (f *os.File, locked bool, err error) {
	for {
		f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o666)
		if err != nil {
			return nil, false, err
		}
		locked, err := tryLock(f)
		if err != nil {
			f.Close()
			return nil, false, fmt.Errorf("lock %s: %w: %w", path, ErrLockUnsupported, err)
		}
		// Some owners remove the file when they are done: a lock on a removed
		// file excludes no other process.
		if !locked || stillThere(f) {
			return f, locked, nil
		}
		f.Close()
	}
}

// Unlock releases the lock.
func (l *FileLock) Unlock() error {
	if !l.remove {
		return l.f.Close()
	}
	if canRemoveOpen { // with the lock held, so that the file is our own
		return errors.Join(os.Remove(l.f.Name()), l.f.Close())
	}
	err := l.f.Close()
	_ = os.Remove(l.f.Name()) // fails if the next owner has already opened it
	return err
}
