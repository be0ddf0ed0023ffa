//go:build !linux

package cpu

import "runtime/debug"

func advise([]byte) {}

// freeMemory is not known here: half of the limit of the process, if there is one.
func freeMemory() int64 { return hostMemory() / 2 }

// hostMemory returns the memory limit of the process if one is set, else 0 (unknown).
func hostMemory() int64 {
	if n := debug.SetMemoryLimit(-1); n < 1<<60 {
		return n
	}
	return 0
}
