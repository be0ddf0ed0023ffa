//go:build unix

package cli

import (
	"errors"
	"syscall"
)

// isSystemError reports whether err is about an exhausted resource or a failure of the system, rather than an invalid
// request.
func isSystemError(err error) bool {
	for _, no := range []syscall.Errno{
		syscall.ENOSPC, syscall.EDQUOT, syscall.EFBIG, syscall.EIO, syscall.EROFS, syscall.EPIPE,
		syscall.EMFILE, syscall.ENFILE, syscall.ENOMEM, syscall.EAGAIN, syscall.ESTALE, syscall.EBADF,
	} {
		if errors.Is(err, no) {
			return true
		}
	}
	return false
}
