package safetensors

import (
	"math"
	"sync/atomic"
	"time"
)

// mapWays chooses how the pages of a mapping are made resident. One call that
// maps them all (mapPages) is the faster way where the page cache holds single
// pages; where it holds large folios, a fault maps many of them at once, and to
// touch the pages takes half the time. Which it is shows in the first chunks.
type mapWays struct {
	begun atomic.Int32
	best  [2]atomic.Int64 // least picoseconds a byte, 0 for unknown
}

// The ways.
const (
	byCall = iota
	byTouch
)

// mapTrials is how often each way is tried.
const mapTrials = 2

// choose gives the way for the next chunk.
func (w *mapWays) choose() int {
	if n := w.begun.Add(1); n <= 2*mapTrials {
		return int(n) & 1
	}
	call, touch := w.best[byCall].Load(), w.best[byTouch].Load()
	if touch > 0 && (call == 0 || touch < call) {
		return byTouch
	}
	return byCall
}

// record notes what a chunk of n bytes has taken.
func (w *mapWays) record(way int, n int64, took time.Duration) {
	if n <= 0 {
		return
	}
	cost := max(1, int64(math.Round(float64(took.Nanoseconds())*1000/float64(n))))
	for {
		old := w.best[way].Load()
		if old > 0 && old <= cost || w.best[way].CompareAndSwap(old, cost) {
			return
		}
	}
}
