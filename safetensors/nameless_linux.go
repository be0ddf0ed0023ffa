package safetensors

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// createNameless makes a file in dir that has no name and is gone when it is
// closed, however the process ends. It fails with errors.ErrUnsupported where
// there are no such files, or no way to give them a name later.
func createNameless(dir string) (*os.File, error) {
	fd, err := unix.Open(dir, unix.O_TMPFILE|unix.O_RDWR|unix.O_CLOEXEC, 0o666)
	if err != nil {
		return nil, errors.ErrUnsupported // else a file with a name will meet the same error
	}
	f := os.NewFile(uintptr(fd), filepath.Join(dir, "file without a name"))
	if _, err := os.Lstat(procName(f)); err != nil {
		f.Close()
		return nil, errors.ErrUnsupported
	}
	return f, nil
}

// linkNameless gives the file a name that is not in use.
func linkNameless(f *os.File, name string) error {
	err := unix.Linkat(unix.AT_FDCWD, procName(f), unix.AT_FDCWD, name, unix.AT_SYMLINK_FOLLOW)
	if err != nil {
		return &os.LinkError{Op: "linkat", Old: f.Name(), New: name, Err: err}
	}
	return nil
}

func procName(f *os.File) string { return fmt.Sprintf("/proc/self/fd/%d", f.Fd()) }
