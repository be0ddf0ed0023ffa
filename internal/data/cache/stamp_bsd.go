//go:build darwin || freebsd || netbsd

package cache

import (
	"io/fs"
	"syscall"
)

// changeTime returns the time of the last change of a file or its attributes, in nanoseconds, and its inode. Unlike the
// modification time it cannot be set by programs.
func changeTime(info fs.FileInfo) (change int64, inode uint64, ok bool) {
	s, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, 0, false
	}
	return s.Ctimespec.Nano(), s.Ino, true
}
