package cpu

import "golang.org/x/sys/unix"

// advise asks for huge pages where a buffer is large enough to fill them.
func advise(data []byte) {
	if len(data) >= 4<<20 {
		_ = unix.Madvise(data, unix.MADV_HUGEPAGE)
	}
}

// hostMemory is the host's memory in bytes, 0 if unknown.
func hostMemory() int64 {
	var s unix.Sysinfo_t
	if unix.Sysinfo(&s) != nil {
		return 0
	}
	return int64(s.Totalram) * int64(s.Unit)
}
