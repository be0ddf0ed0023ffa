//go:build unix

package cli

import (
	"errors"
	"syscall"
)

// isDiskError reports whether err is about a disk that takes no more.
func isDiskError(err error) bool {
	for _, no := range []syscall.Errno{syscall.ENOSPC, syscall.EDQUOT, syscall.EFBIG, syscall.EIO, syscall.EROFS, syscall.EPIPE} {
		if errors.Is(err, no) {
			return true
		}
	}
	return false
}
