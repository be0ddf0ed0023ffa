package data

import (
	"cmp"
	"slices"
	"sync"

	"github.com/lorafuse/lorafuse/internal/philox"
)

// Operation numbers of random draws other than the order of an epoch. No graph uses them, so that the draws are
// independent of dropout and of each other.
const (
	packingDraw   = 0xFFFF_FFFE
	bucketingDraw = 0xFFFF_FFFD
)

// derived returns a seed for another permutation of the run.
func derived(seed uint64, epoch, draw uint32, index uint64) uint64 {
	w := philox.NewStream(seed, epoch, draw).Block(index)
	return uint64(w[0]) | uint64(w[1])<<32
}

// permutation returns a keyed random permutation of n elements.
func permutation(n int, seed uint64, epoch uint32) func(i int) int {
	p := philox.NewPermutation(uint64(n), seed, epoch)
	return func(i int) int { return int(p.At(uint64(i))) }
}

// order maps a position in an epoch to a row.
type order interface {
	at(epoch, place int) int
}

// fileOrder returns the rows in file order.
type fileOrder struct{}

func (fileOrder) at(_, place int) int { return place }

// shuffled returns the rows in a new random order in each epoch.
type shuffled struct {
	rows int
	seed uint64
}

func (o shuffled) at(epoch, place int) int {
	return int(philox.NewPermutation(uint64(o.rows), o.seed, uint32(epoch)).At(uint64(place)))
}

// bucketWindow is the number of micro-batches whose rows are sorted together, as in transformers' group_by_length.
const bucketWindow = 50

// bucketed groups rows of similar length into micro-batches. The rows of a window of the underlying order are sorted by
// length and cut into micro-batches, which come in random order. A last, shorter micro-batch stays last.
type bucketed struct {
	order
	rows    int
	window  int // rows, a multiple of batch
	batch   int
	seed    uint64
	shuffle bool
	length  func(row int) int

	mu     sync.Mutex
	cached struct { // the last window
		epoch, window int
		rows          []int
	}
}

func (o *bucketed) at(epoch, place int) int {
	o.mu.Lock()
	defer o.mu.Unlock()
	window := place / o.window
	if c := &o.cached; c.rows == nil || c.epoch != epoch || c.window != window {
		c.epoch, c.window, c.rows = epoch, window, o.sorted(epoch, window)
	}
	return o.cached.rows[place%o.window]
}

// sorted returns the order of the rows within a window.
func (o *bucketed) sorted(epoch, window int) []int {
	from := window * o.window
	rows := make([]int, min(o.window, o.rows-from))
	for i := range rows {
		rows[i] = o.order.at(epoch, from+i)
	}
	slices.SortStableFunc(rows, func(a, b int) int { return cmp.Compare(o.length(b), o.length(a)) })
	if !o.shuffle {
		return rows
	}
	whole := len(rows) / o.batch
	next := permutation(whole, derived(o.seed, uint32(epoch), bucketingDraw, uint64(window)), uint32(epoch))
	out := make([]int, 0, len(rows))
	for i := range whole {
		b := next(i) * o.batch
		out = append(out, rows[b:b+o.batch]...)
	}
	return append(out, rows[whole*o.batch:]...)
}
