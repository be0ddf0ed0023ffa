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
	groupingDraw  = 0xFFFF_FFFB
	splittingDraw = 0xFFFF_FFFA
	mixingDraw    = 0xFFFF_FFF9
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
	whole := len(rows) / o.batch * o.batch
	batches := slices.Collect(slices.Chunk(rows[:whole], o.batch))
	return append(slices.Concat(mixed(batches, o.seed, uint32(epoch), bucketingDraw, uint64(window))...), rows[whole:]...)
}

// mixed returns micro-batches in random order.
func mixed(batches [][]int, seed uint64, epoch, draw uint32, index uint64) [][]int {
	next := permutation(len(batches), derived(seed, epoch, draw, index), epoch)
	out := make([][]int, len(batches))
	for i := range out {
		out[i] = batches[next(i)]
	}
	return out
}

// Grouped divides the rows of an epoch into micro-batches whose rows belong to one group, such as images of one size.
type Grouped struct {
	Groups    []int // the group of each row, counted from 0
	BatchSize int
	Seed      uint64
	Shuffle   bool // rows, then micro-batches, in a new order in each epoch
	DropLast  bool // drop the rows of a group that do not fill a micro-batch
}

// Batches returns the rows of the micro-batches of an epoch.
func (g Grouped) Batches(epoch int) (all [][]int) {
	if len(g.Groups) == 0 {
		return nil
	}
	row := func(place int) int { return place }
	if g.Shuffle {
		row = permutation(len(g.Groups), g.Seed, uint32(epoch))
	}
	open := make([][]int, slices.Max(g.Groups)+1)
	for place := range g.Groups {
		i := row(place)
		b := &open[g.Groups[i]]
		if *b = append(*b, i); len(*b) == g.BatchSize {
			all, *b = append(all, *b), nil
		}
	}
	for _, b := range open {
		if len(b) > 0 && !g.DropLast {
			all = append(all, b)
		}
	}
	if g.Shuffle {
		all = mixed(all, g.Seed, uint32(epoch), groupingDraw, 0)
	}
	return all
}
