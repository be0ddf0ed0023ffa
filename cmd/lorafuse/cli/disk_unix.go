//go:build unix

package cli

import (
	"errors"
	"syscall"
)

// isSystemError reports whether err says that the system has no more of
// something, or that it failed: whatever was asked for, it was not wrong.
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
