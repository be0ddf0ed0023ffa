package safetensors

import (
	"errors"
	"fmt"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// openDirect opens a file for reads that bypass the page cache, if its file
// system supports them.
func openDirect(of *File) (*os.File, alignment, error) {
	f, err := reopen(of, openFlags|unix.O_DIRECT)
	if errors.Is(err, unix.EINVAL) {
		return nil, alignment{}, errors.New("the file system has no O_DIRECT")
	}
	if err != nil {
		return nil, alignment{}, err
	}
	a, err := directAlignment(f)
	if err != nil {
		f.Close()
		return nil, alignment{}, err
	}
	return f, a, nil
}

func directAlignment(f *os.File) (alignment, error) {
	defer runtime.KeepAlive(f)
	fd := int(f.Fd())
	var fs unix.Statfs_t
	if unix.Fstatfs(fd, &fs) == nil && fs.Type == unix.TMPFS_MAGIC {
		return alignment{}, errors.New("the file is in memory") // some versions of tmpfs take the flag and ignore it
	}
	a := alignment{offset: pageAlign, memory: pageAlign} // sufficient if the kernel does not report an alignment
	var x unix.Statx_t
	if err := unix.Statx(fd, "", unix.AT_EMPTY_PATH, unix.STATX_DIOALIGN, &x); err == nil && x.Mask&unix.STATX_DIOALIGN != 0 {
		a = alignment{offset: int64(x.Dio_offset_align), memory: int64(x.Dio_mem_align)}
	}
	if a.offset == 0 || a.memory == 0 || pageAlign%a.offset != 0 {
		return alignment{}, fmt.Errorf("the file system wants reads of multiples of %d bytes", a.offset)
	}
	return a, nil
}

// readDirect fills memory from offset, up to the end of the file; both are
// equally aligned. It returns the number of bytes read.
func readDirect(f *os.File, memory []byte, offset int64, a alignment) (n int64, err error) {
	defer runtime.KeepAlive(f)
	fd := int(f.Fd())
	for n < int64(len(memory)) {
		got, err := unix.Pread(fd, memory[n:], offset+n)
		switch {
		case err == unix.EINTR:
			continue
		case err == unix.EINVAL || err == unix.EOPNOTSUPP:
			return n, fmt.Errorf("%w: %w", errRefused, err)
		case err != nil:
			return n, os.NewSyscallError("pread", err)
		}
		n += int64(got)
		if got == 0 || n%a.offset != 0 {
			break // end of file
		}
	}
	return n, nil
}
