package data

import (
	"cmp"
	"slices"
	"sync"

	"github.com/lorafuse/lorafuse/internal/philox"
)

// Draws other than the order of an epoch have operation numbers that no graph
// gives, so that they are independent of dropout and of each other.
const (
	packingDraw   = 0xFFFF_FFFE
	bucketingDraw = 0xFFFF_FFFD
)

// derived is a seed for one more permutation of the run.
func derived(seed uint64, epoch, draw uint32, index uint64) uint64 {
	w := philox.NewStream(seed, epoch, draw).Block(index)
	return uint64(w[0]) | uint64(w[1])<<32
}

// permutation is the keyed order of n things.
func permutation(n int, seed uint64, epoch uint32) func(i int) int {
	p := philox.NewPermutation(uint64(n), seed, epoch)
	return func(i int) int { return int(p.At(uint64(i))) }
}

// An order says which row comes when: at is a function of the epoch and the
// place in it.
type order interface {
	at(epoch, place int) int
}

// fileOrder takes the rows as they stand.
type fileOrder struct{}

func (fileOrder) at(_, place int) int { return place }

// shuffled takes the rows in a new random order in each epoch.
type shuffled struct {
	rows int
	seed uint64
}

func (o shuffled) at(epoch, place int) int {
	return int(philox.NewPermutation(uint64(o.rows), o.seed, uint32(epoch)).At(uint64(place)))
}

// bucketWindow is how many micro-batches are made from rows sorted together,
// as in transformers' group_by_length.
const bucketWindow = 50

// bucketed makes micro-batches of rows of similar length: the rows of a window
// of the underlying order are sorted by length and cut into micro-batches,
// which come in random order. A last, shorter micro-batch stays last.
type bucketed struct {
	order
	rows    int
	window  int // rows, a multiple of batch
	batch   int
	seed    uint64
	shuffle bool
	length  func(row int) int

	mu     sync.Mutex
	cached struct { // the window that was asked for last
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

// sorted is the order of the rows within a window.
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
