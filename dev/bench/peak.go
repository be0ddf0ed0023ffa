package bench

import "fmt"

// PeakRSS returns the peak memory of this process in bytes, or 0 if the system does not report it.
func PeakRSS() int64 {
	var kib int64
	// Not getrusage: there, a process starts with the peak of its parent.
	if _, err := fmt.Sscan(field(text("/proc/self/status"), "VmHWM"), &kib); err == nil {
		return kib << 10
	}
	return peakRSS()
}
