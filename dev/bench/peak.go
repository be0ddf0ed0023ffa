package bench

import "fmt"

// PeakRSS is the most bytes that this process has held in memory so far, 0
// where the system does not tell.
func PeakRSS() int64 {
	var kib int64
	// Not getrusage, where a process begins with the peak of the one that
	// started it.
	if _, err := fmt.Sscan(field(text("/proc/self/status"), "VmHWM"), &kib); err == nil {
		return kib << 10
	}
	return peakRSS()
}
