//go:build !linux

package dist

import "runtime"

// hostCores returns the number of cores of the host.
func hostCores() int { return runtime.NumCPU() }
