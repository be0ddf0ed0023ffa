//go:build unix

package safetensors

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// keepsOpen is true: a file can be renamed while it is open.
const keepsOpen = true

// flushOnClose triggers the flush of closing the file, and keeps it open.
func flushOnClose(f *os.File) error {
	fd, err := unix.Dup(int(f.Fd()))
	if err != nil {
		return err
	}
	return unix.Close(fd)
}

// syncFolder makes the names in a folder survive a crash of the machine.
func syncFolder(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	err = d.Sync()
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOTSUP) {
		return nil // returned by file systems that do not support it
	}
	return err
}
