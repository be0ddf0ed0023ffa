package cpu

import (
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// advise requests huge pages if the buffer is large enough to fill them.
func advise(data []byte) {
	if len(data) >= 4<<20 {
		_ = unix.Madvise(data, unix.MADV_HUGEPAGE)
	}
}

// freeMemory returns the memory in bytes that is available to a process now, 0 if unknown.
func freeMemory() int64 {
	raw, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return hostMemory() / 2
	}
	for line := range strings.Lines(string(raw)) {
		var kib int64
		if n, _ := fmt.Sscanf(line, "MemAvailable: %d kB", &kib); n == 1 {
			return kib << 10
		}
	}
	return hostMemory() / 2
}

// hostMemory returns the host's memory in bytes, 0 if unknown.
func hostMemory() int64 {
	var s unix.Sysinfo_t
	if unix.Sysinfo(&s) != nil {
		return 0
	}
	return int64(s.Totalram) * int64(s.Unit)
}
