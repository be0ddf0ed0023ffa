//go:build unix

package fsatomic

import "golang.org/x/sys/unix"

// FreeSpace returns the number of bytes available in a folder and the size of its file
// system; ok is false if they are unknown.
func FreeSpace(dir string) (free, total int64, ok bool) {
	var s unix.Statfs_t
	if unix.Statfs(dir, &s) != nil {
		return 0, 0, false
	}
	return int64(s.Bavail) * int64(s.Bsize), int64(s.Blocks) * int64(s.Bsize), true
}
