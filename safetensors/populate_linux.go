package safetensors

import (
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// mapPages maps all pages of memory and reads the ones that are not in the page
// cache. It returns false before Linux 5.14, and if a page cannot be read.
func mapPages(memory []byte) bool {
	defer runtime.KeepAlive(memory)
	start := uintptr(unsafe.Pointer(unsafe.SliceData(memory)))
	inPage := start % uintptr(pageSize)
	for {
		_, _, err := unix.Syscall(unix.SYS_MADVISE, start-inPage, uintptr(len(memory))+inPage, unix.MADV_POPULATE_READ)
		if err != unix.EINTR && err != unix.EAGAIN {
			return err == 0
		}
	}
}
