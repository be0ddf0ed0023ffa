//go:build unix

package hub

import "golang.org/x/sys/unix"

// freeSpace is the number of bytes that may still be written in a folder.
func freeSpace(dir string) (int64, bool) {
	var s unix.Statfs_t
	if unix.Statfs(dir, &s) != nil {
		return 0, false
	}
	return int64(s.Bavail) * int64(s.Bsize), true
}
