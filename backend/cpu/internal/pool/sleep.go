package pool

import (
	"sync/atomic"
	"time"
)

// spinFor is the time that an idle goroutine spins before it parks: longer than a few consecutive operations that are
// not worth dividing, short enough not to disturb the rest of the program. Waking a processor of a virtual machine
// takes longer than such an operation: with a quarter of this, layers of 16 to 31 rows took a third more time (a Xeon
// of 2024).
const spinFor = 200 * time.Microsecond

// sleeper lets one goroutine wait for a condition that other goroutines signal.
type sleeper struct {
	parked atomic.Bool
	wake   chan struct{} // one token for each parked that others took back
	_      line
}

// await returns when ready does or when roused, which may be for nothing.
// Without spin it parks at once and so leaves its processor to those it waits
// for.
func (s *sleeper) await(spin bool, ready func() bool) {
	if spin && spun(ready) {
		return
	}
	s.parked.Store(true)
	if ready() && s.parked.CompareAndSwap(true, false) {
		return
	}
	<-s.wake
}

// rouse wakes the goroutine if it is parked. The condition must have been stored before.
func (s *sleeper) rouse() {
	if s.parked.Load() && s.parked.CompareAndSwap(true, false) {
		s.wake <- struct{}{}
	}
}

// spun waits for ready without parking and reports whether it came in time.
func spun(ready func() bool) bool {
	if ready() {
		return true
	}
	const looks = 32 // between two looks at the clock
	for start := time.Now(); time.Since(start) < spinFor; {
		for range looks {
			relax(2)
			if ready() {
				return true
			}
		}
	}
	return false
}
