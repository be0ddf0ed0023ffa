//go:build unix

package safetensors

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// openFlags keeps the open of a FIFO from waiting for a writer.
const openFlags = os.O_RDONLY | unix.O_NONBLOCK

func mapFile(f *os.File, size int) (region, error) {
	data, err := unix.Mmap(int(f.Fd()), 0, size, unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return region{}, &os.PathError{Op: "mmap", Path: f.Name(), Err: err}
	}
	return region{data: data, mapped: true}, nil
}

func (r region) unmap() error { return unix.Munmap(r.data) }

// isFault reports whether an error is that of a system call that was given
// memory which cannot be read.
func isFault(err error) bool { return errors.Is(err, unix.EFAULT) }
