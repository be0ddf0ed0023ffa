//go:build !unix

package telemetry

import "runtime"

func process() Process { return Process{Goroutines: runtime.NumGoroutine()} }
