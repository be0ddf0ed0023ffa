package safetensors

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// createNameless creates a file in dir that has no name and disappears when it
// is closed, however the process ends. It fails with errors.ErrUnsupported if
// the system does not support such files or cannot name them later.
func createNameless(dir string) (*os.File, error) {
	fd, err := unix.Open(dir, unix.O_TMPFILE|unix.O_RDWR|unix.O_CLOEXEC, 0o666)
	if err != nil {
		return nil, errors.ErrUnsupported // for other errors, a file with a name will fail in the same way
	}
	f := os.NewFile(uintptr(fd), filepath.Join(dir, "file without a name"))
	if _, err := os.Lstat(procName(f)); err != nil {
		f.Close()
		return nil, errors.ErrUnsupported
	}
	return f, nil
}

// linkNameless names the file. The name must not be in use.
func linkNameless(f *os.File, name string) error {
	err := unix.Linkat(unix.AT_FDCWD, procName(f), unix.AT_FDCWD, name, unix.AT_SYMLINK_FOLLOW)
	if err != nil {
		return &os.LinkError{Op: "linkat", Old: f.Name(), New: name, Err: err}
	}
	return nil
}

func procName(f *os.File) string { return fmt.Sprintf("/proc/self/fd/%d", f.Fd()) }
