package telemetry

import (
	"bytes"
	"os"
	"runtime"
	"strconv"

	"golang.org/x/sys/unix"
)

func process() Process {
	p := Process{Goroutines: runtime.NumGoroutine()}
	if status, err := os.ReadFile("/proc/self/status"); err == nil {
		p.ResidentBytes, p.PeakBytes = kilobytes(status, "VmRSS:"), kilobytes(status, "VmHWM:")
	}
	var u unix.Rusage
	if unix.Getrusage(unix.RUSAGE_SELF, &u) == nil {
		p.CPUSeconds = float64(u.Utime.Nano()+u.Stime.Nano()) / 1e9
	}
	return p
}

// kilobytes finds a line such as "VmRSS:     1234 kB".
func kilobytes(status []byte, key string) int64 {
	_, rest, found := bytes.Cut(status, []byte("\n"+key))
	if !found {
		return 0
	}
	fields := bytes.Fields(rest)
	if len(fields) == 0 {
		return 0
	}
	n, err := strconv.ParseInt(string(fields[0]), 10, 64)
	if err != nil {
		return 0
	}
	return n << 10
}
