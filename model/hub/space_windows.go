//go:build windows

package hub

import "golang.org/x/sys/windows"

// freeSpace is the number of bytes that may still be written in a folder.
func freeSpace(dir string) (int64, bool) {
	path, err := windows.UTF16PtrFromString(dir)
	if err != nil {
		return 0, false
	}
	var free uint64
	if windows.GetDiskFreeSpaceEx(path, &free, nil, nil) != nil {
		return 0, false
	}
	return int64(free), true
}
