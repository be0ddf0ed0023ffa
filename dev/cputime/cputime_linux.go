package cputime

import (
	"runtime"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Least has n things run in turns as long as b asks, on this thread, and returns the
// least time of a processor that each has taken. What before does is not timed; it
// may be nil.
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

// thread is what this thread has taken of a processor.
func thread(b *testing.B) time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t); err != nil {
		b.Fatal(err)
	}
	return time.Duration(t.Nano())
}
