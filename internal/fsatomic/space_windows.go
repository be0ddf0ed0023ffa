//go:build windows

package fsatomic

import "golang.org/x/sys/windows"

// FreeSpace returns the number of bytes available in a folder and the size of its file
// system; ok is false if they are unknown.
func FreeSpace(dir string) (free, total int64, ok bool) {
	path, err := windows.UTF16PtrFromString(dir)
	if err != nil {
		return 0, 0, false
	}
	var available, size uint64
	if windows.GetDiskFreeSpaceEx(path, &available, &size, nil) != nil {
		return 0, 0, false
	}
	return int64(available), int64(size), true
}
