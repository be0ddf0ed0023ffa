package safetensors

import (
	"errors"
	"os"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// sampleCache counts the pages in a range of a mapped file and how many of them
// are in the page cache. It returns false if the system does not tell: it does
// so only for processes that may write to the file.
func sampleCache(f *os.File, mapped []byte, offset, length int64) (in, of int64, ok bool) {
	defer runtime.KeepAlive(f)
	of = (length + pageSize - 1) / pageSize
	var s unix.Cachestat_t
	err := unix.Cachestat(uint(f.Fd()), &unix.CachestatRange{Off: uint64(offset), Len: uint64(length)}, &s, 0)
	if err == nil {
		return int64(s.Cache), of, true
	}
	if errors.Is(err, unix.ENOSYS) { // before Linux 6.5
		return mincore(mapped[offset : offset+length])
	}
	return 0, 0, false
}

// mincore counts the pages of mapped memory and how many of them are in the
// page cache. For a process without write permission the kernel reports all of
// them as cached.
func mincore(memory []byte) (in, of int64, ok bool) {
	pages := make([]byte, (int64(len(memory))+pageSize-1)/pageSize)
	_, _, errno := unix.Syscall(unix.SYS_MINCORE, uintptr(unsafe.Pointer(&memory[0])), uintptr(len(memory)), uintptr(unsafe.Pointer(&pages[0])))
	for _, p := range pages {
		in += int64(p & 1)
	}
	return in, int64(len(pages)), errno == 0
}
