//go:build unix && !linux

package telemetry

import (
	"runtime"

	"golang.org/x/sys/unix"
)

func process() Process {
	p := Process{Goroutines: runtime.NumGoroutine()}
	var u unix.Rusage
	if unix.Getrusage(unix.RUSAGE_SELF, &u) == nil {
		p.CPUSeconds = float64(u.Utime.Nano()+u.Stime.Nano()) / 1e9
		p.PeakBytes = int64(u.Maxrss) * rssUnit
	}
	return p
}

// rssUnit is the unit of memory in getrusage, in bytes.
var rssUnit = func() int64 {
	if runtime.GOOS == "darwin" {
		return 1
	}
	return 1 << 10
}()
