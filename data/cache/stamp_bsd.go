//go:build darwin || freebsd || netbsd

package cache

import (
	"io/fs"
	"syscall"
)

// changeTime is when the file last changed, its attributes included, in
// nanoseconds, and its number. A program can set the time of modification back,
// but not this one.
func changeTime(info fs.FileInfo) (change int64, inode uint64, ok bool) {
	s, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, 0, false
	}
	return s.Ctimespec.Nano(), s.Ino, true
}
