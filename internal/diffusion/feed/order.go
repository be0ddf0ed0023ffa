package feed

import (
	"github.com/lorafuse/lorafuse/internal/diffusion/dit"
	"github.com/lorafuse/lorafuse/internal/philox"
)

// batchDraw is the random stream for the order of batches. It differs from the streams of
// graph operations and of packages data and data/cache.
const batchDraw = 0xFFFF_FFFB

// batch lists the samples of a micro-batch before it is cut: BatchSize samples of one size,
// or fewer at the end of an epoch.
type batch []int

// settle computes the number of batches per epoch and the bounds of their sizes.
func (f *Feed) settle() {
	f.batches, f.bounds = 0, map[string]int{}
	for i := range f.buckets {
		b := &f.buckets[i]
		n := len(b.pictures) / f.BatchSize
		if !f.DropLast && len(b.pictures)%f.BatchSize > 0 {
			n++
		}
		f.batches += n
		sizes := f.Model.Bounds(f.rows(), f.like(*b))
		b.image = sizes[dit.PredictedTokens]
		for axis, size := range sizes {
			f.bounds[axis] = max(f.bounds[axis], size)
		}
	}
	f.steps = f.batches / f.Accumulation
	if !f.DropLast && f.batches%f.Accumulation > 0 {
		f.steps++
	}
}

// step returns the batches of a step.
func (f *Feed) step(step int) []batch {
	if step < 0 {
		return nil
	}
	all := f.batchesOf(step / f.steps)
	from := step % f.steps * f.Accumulation
	return all[from:min(from+f.Accumulation, len(all))]
}

// batchesOf returns the batches of an epoch in order. It shuffles the samples, groups them by
// size into batches, and then shuffles the batches.
func (f *Feed) batchesOf(epoch int) []batch {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.epoch == epoch {
		return f.order
	}
	var all []batch
	open := make([]batch, len(f.buckets))
	order := philox.NewPermutation(uint64(len(f.pictures)), f.Seed, uint32(epoch))
	for place := range f.pictures {
		i := place
		if f.Shuffle {
			i = int(order.At(uint64(place)))
		}
		n := f.pictures[i].bucket
		if open[n] = append(open[n], i); len(open[n]) == f.BatchSize {
			all, open[n] = append(all, open[n]), nil
		}
	}
	for _, b := range open {
		if len(b) > 0 && !f.DropLast {
			all = append(all, b)
		}
	}
	if f.Shuffle {
		w := philox.NewStream(f.Seed, uint32(epoch), batchDraw).Block(0)
		order := philox.NewPermutation(uint64(len(all)), uint64(w[0])|uint64(w[1])<<32, uint32(epoch))
		mixed := make([]batch, len(all))
		for place := range mixed {
			mixed[place] = all[order.At(uint64(place))]
		}
		all = mixed
	}
	f.epoch, f.order = epoch, all
	return all
}
