package safetensors

import (
	"math"
	"sync/atomic"
	"time"
)

// mapWays chooses how the pages of a mapping are made resident. A call that
// maps all pages (mapPages) is faster if the page cache holds single pages. If
// it holds large folios, a fault maps many pages at once and touching the pages
// takes half the time. The first chunks show which applies.
type mapWays struct {
	begun atomic.Int32
	best  [2]atomic.Int64 // least picoseconds per byte, 0 for unknown
}

// The ways to make pages resident.
const (
	byCall = iota
	byTouch
)

// mapTrials is the number of trials of each way.
const mapTrials = 2

// choose returns the way to use for the next chunk.
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

// record updates the best time of a way with a chunk of n bytes.
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
