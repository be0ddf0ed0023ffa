//go:build !unix

package cli

import (
	"errors"
	"syscall"
)

// isDiskError reports whether err is about a disk that takes no more.
func isDiskError(err error) bool {
	const handleDiskFull, diskFull = syscall.Errno(39), syscall.Errno(112) // of Windows
	return errors.Is(err, handleDiskFull) || errors.Is(err, diskFull)
}
