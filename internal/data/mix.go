package data

import (
	"slices"

	"github.com/lorafuse/lorafuse/internal/philox"
)

// blend is an order in which the entries of a dataset have given shares of the rows of an epoch. Entry i has counts[i]
// rows in each epoch. They continue where the last epoch ended, and no row comes again before all rows of its entry have
// come.
type blend struct {
	order           // of the rows of an epoch
	firsts, sizes   []int
	counts, offsets []int // rows of each entry in an epoch, and of the entries before it
	seed            uint64
	shuffle         bool
}

// newBlend returns the order of a dataset whose entries have these weights.
func newBlend(d *Dataset, weights []float64, base order, c LoaderConfig) (*blend, error) {
	if len(weights) != len(d.entries) {
		return nil, problem(ErrOption, "mix: found %d weights, expected one for each of the %d entries of the data", len(weights), len(d.entries))
	}
	total := 0.0
	for i, w := range weights {
		if !(w > 0) {
			return nil, problem(ErrOption, "mix: found the weight %v of entry %d, expected more than 0", w, i+1)
		}
		total += w
	}
	b := &blend{order: base, firsts: d.entries, seed: c.Seed, shuffle: c.Shuffle}
	n, share := d.Len(), 0.0
	for i, w := range weights {
		end := n
		if i+1 < len(d.entries) {
			end = d.entries[i+1]
		}
		b.sizes = append(b.sizes, end-d.entries[i])
		before := int(share/total*float64(n) + 0.5)
		share += w
		after := int(share/total*float64(n) + 0.5)
		if i+1 == len(weights) {
			after = n
		}
		b.offsets, b.counts = append(b.offsets, before), append(b.counts, after-before)
		switch {
		case b.sizes[i] == 0:
			return nil, problem(ErrEmpty, "mix: entry %d of the data has no rows", i+1)
		case b.counts[i] == 0:
			return nil, problem(ErrOption, "mix: the weight %v of entry %d is less than one of %d rows", w, i+1, n)
		}
	}
	return b, nil
}

func (b *blend) at(epoch, position int) int {
	slot := b.order.at(epoch, position)
	entry, found := slices.BinarySearch(b.offsets, slot)
	if !found {
		entry--
	}
	drawn := epoch*b.counts[entry] + slot - b.offsets[entry]
	pass, at := drawn/b.sizes[entry], drawn%b.sizes[entry]
	if b.shuffle {
		seed := derived(b.seed, uint32(pass), mixingDraw, uint64(entry))
		at = int(philox.NewPermutation(uint64(b.sizes[entry]), seed, uint32(pass)).At(uint64(at)))
	}
	return b.firsts[entry] + at
}
