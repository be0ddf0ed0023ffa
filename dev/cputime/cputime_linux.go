package cputime

import (
	"runtime"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Least runs n functions alternately on this thread until b ends, and returns the smallest CPU time of each. before is
// not timed; it may be nil.
func Least(b *testing.B, n int, before, run func(i int)) []time.Duration {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	times := make([][]time.Duration, n)
	for b.Loop() {
		for i := range times {
			if before != nil {
				before(i)
			}
			start := thread(b)
			run(i)
			times[i] = append(times[i], thread(b)-start)
		}
	}
	least := make([]time.Duration, n)
	for i := range times {
		least[i] = slices.Min(times[i])
	}
	return least
}

// thread returns the CPU time of this thread.
func thread(b *testing.B) time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t); err != nil {
		b.Fatal(err)
	}
	return time.Duration(t.Nano())
}
