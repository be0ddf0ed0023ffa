package dist

import (
	"runtime"

	"golang.org/x/sys/unix"
)

// hostCores returns the number of cores of the host or container. Its first process may
// use all of them, since a launcher binds only the processes that it starts.
func hostCores() int {
	var set unix.CPUSet
	if unix.SchedGetaffinity(1, &set) != nil {
		return runtime.NumCPU()
	}
	return max(set.Count(), runtime.NumCPU())
}
