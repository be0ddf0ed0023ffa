//go:build !unix

package cli

import (
	"errors"
	"syscall"
)

// isSystemError reports whether err is about a full disk.
func isSystemError(err error) bool {
	const handleDiskFull, diskFull = syscall.Errno(39), syscall.Errno(112) // of Windows
	return errors.Is(err, handleDiskFull) || errors.Is(err, diskFull)
}
