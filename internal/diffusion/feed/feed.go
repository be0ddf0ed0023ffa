// Package feed loads training batches for diffusion transformers. It reads latents and
// embeddings from a cache, adds noise, and groups samples of one size. Order, noise, noise
// levels and dropped captions are random functions of the seed, the step and the sample, so
// that a resumed run continues exactly as an uninterrupted one.
package feed

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/lorafuse/lorafuse/internal/data"
	"github.com/lorafuse/lorafuse/internal/data/cache"
	"github.com/lorafuse/lorafuse/internal/diffusion/dit"
	"github.com/lorafuse/lorafuse/internal/diffusion/flow"
)

// ErrOption is wrapped if the options do not allow any batches.
var ErrOption = errors.New("invalid option")

// Scale normalizes latents of an autoencoder for a transformer, in place.
type Scale interface{ Normalise(z dit.Latent) }

// Options configures a Feed.
type Options struct {
	Samples []cache.Sample
	Cache   *cache.Cache // has an entry for each sample
	Scale   Scale        // nil means that cached latents are normalized
	Fold    int          // cached positions per transformer position along each side; zero means 1
	Model   dit.Transformer

	Table     flow.Table // the noise levels of training
	Timesteps flow.Timesteps
	Weighting flow.Weighting
	Guidance  float32 // guidance embedding for distilled models
	// CaptionDropout is the fraction of captions that are replaced by the empty prompt.
	CaptionDropout float64

	BatchSize    int // samples per micro-batch
	Accumulation int // micro-batches per step; zero means 1
	// Cut is the number of parts in which each micro-batch is computed. It must divide
	// BatchSize. Zero means 1. It does not change the samples of a step or their noise.
	Cut      int
	Seed     uint64
	Shuffle  bool // reshuffle in each epoch
	DropLast bool // drop samples that do not fill a batch, and batches that do not fill a step
}

// Feed loads the micro-batches of a training run; it provides the rows of a train.Run. Steps
// count over all epochs; each epoch contains every sample once. It is safe for concurrent
// use.
type Feed struct {
	Options
	pictures []picture
	unkeyed  int // pictures without a key
	buckets  []bucket
	order    data.Grouped
	steps    int // per epoch
	bounds   map[string]int
	spare    *sync.Pool // of *[]float32: noise of a micro-batch

	mu      sync.Mutex
	epoch   int // of batches
	batches [][]int
}

// New reads the outlines of all cache entries, and the values of those without a key. Errors:
// ErrOption, dit.ErrSample with the file name if the transformer cannot process an entry, and
// errors of [cache.Cache.Outline].
func New(ctx context.Context, o Options) (*Feed, error) {
	o.Accumulation, o.Cut, o.Fold = max(o.Accumulation, 1), max(o.Cut, 1), max(o.Fold, 1)
	switch {
	case o.BatchSize < 1:
		return nil, fmt.Errorf("feed: %w: found a batch size of %d, expected 1 or more", ErrOption, o.BatchSize)
	case o.BatchSize%o.Cut != 0:
		return nil, fmt.Errorf("feed: %w: found batches of %d cut in %d, expected a divisor", ErrOption, o.BatchSize, o.Cut)
	case len(o.Samples) == 0:
		return nil, fmt.Errorf("feed: %w: found no samples", ErrOption)
	}
	f := &Feed{Options: o, epoch: -1, spare: &sync.Pool{New: func() any { return new([]float32) }}}
	f.order = data.Grouped{BatchSize: o.BatchSize, Seed: o.Seed, Shuffle: o.Shuffle, DropLast: o.DropLast}
	if err := f.look(ctx); err != nil {
		return nil, err
	}
	f.measureBatches()
	if f.steps == 0 {
		return nil, fmt.Errorf("feed: %w: %d pictures of %d sizes do not fill a step of batches of %d × %d, and those that do not are left out (drop_last)",
			ErrOption, len(f.pictures), len(f.buckets), o.BatchSize, o.Accumulation)
	}
	return f, nil
}

// Recut returns the same feed with micro-batches in n parts. Errors: ErrOption.
func (f *Feed) Recut(n int) (*Feed, error) {
	if n < 1 || f.BatchSize%n != 0 {
		return nil, fmt.Errorf("feed: %w: found batches of %d cut in %d, expected a divisor", ErrOption, f.BatchSize, n)
	}
	c := &Feed{Options: f.Options, pictures: f.pictures, unkeyed: f.unkeyed, buckets: slices.Clone(f.buckets), order: f.order, spare: f.spare, epoch: -1}
	c.Cut = n
	c.measureBatches()
	return c, nil
}

// measureBatches computes the number of steps per epoch and the bounds of their sizes.
func (f *Feed) measureBatches() {
	batches := len(f.batchesOf(0))
	if f.steps = batches / f.Accumulation; !f.DropLast && batches%f.Accumulation > 0 {
		f.steps++
	}
	f.bounds = map[string]int{}
	for i := range f.buckets {
		b := &f.buckets[i]
		sizes := f.Model.Bounds(f.rows(), f.like(*b))
		b.image = sizes[dit.PredictedTokens]
		for axis, size := range sizes {
			f.bounds[axis] = max(f.bounds[axis], size)
		}
	}
}

// step returns the batches of a step before they are cut: BatchSize samples of one size, or
// fewer at the end of an epoch.
func (f *Feed) step(step int) [][]int {
	if step < 0 {
		return nil
	}
	all := f.batchesOf(step / f.steps)
	from := step % f.steps * f.Accumulation
	return all[from:min(from+f.Accumulation, len(all))]
}

// batchesOf returns the batches of an epoch in order.
func (f *Feed) batchesOf(epoch int) [][]int {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.epoch != epoch {
		f.epoch, f.batches = epoch, f.order.Batches(epoch)
	}
	return f.batches
}

// StepsPerEpoch returns the number of optimizer steps of one pass over the samples.
func (f *Feed) StepsPerEpoch() int { return f.steps }

// Micros returns the number of micro-batches of a step, or 0 for a negative step.
func (f *Feed) Micros(step int) (n int) {
	for _, b := range f.step(step) {
		n += f.parts(b)
	}
	return n
}

// LossTokens returns the number of samples of a step, the divisor for the sum of their
// losses.
func (f *Feed) LossTokens(step int) (n int) {
	for _, b := range f.step(step) {
		n += len(b)
	}
	return n
}

// Tokens returns the number of samples of a step, in which throughput is reported.
func (f *Feed) Tokens(step int) int { return f.LossTokens(step) }

// Unit returns the unit of Tokens.
func (f *Feed) Unit() string { return "images" }

// MaxTokens returns the maximum number of text and image tokens per micro-batch.
func (f *Feed) MaxTokens() int { return f.rows() * f.bounds[tokens] }

// Bounds returns the maximum sizes of the axes of micro-batches.
func (f *Feed) Bounds() map[string]int { return f.bounds }

// Unkeyed returns the number of samples whose cache entries, written by another program, do
// not record their sources. Nothing can tell whether they are up to date.
func (f *Feed) Unkeyed() int { return f.unkeyed }

// Digest returns a SHA-256 of the content of all entries in order.
func (f *Feed) Digest() [sha256.Size]byte {
	h := sha256.New()
	for _, p := range f.pictures {
		fmt.Fprintf(h, "%q\n", p.sums)
	}
	return [sha256.Size]byte(h.Sum(nil))
}

// String returns a summary of an epoch.
func (f *Feed) String() string {
	sizes := "one size"
	if n := len(f.buckets); n > 1 {
		sizes = fmt.Sprintf("%d sizes", n)
	}
	return fmt.Sprintf("%d pictures of %s, %d steps per epoch", len(f.pictures), sizes, f.steps)
}

// rows returns the number of samples per micro-batch.
func (f *Feed) rows() int { return f.BatchSize / f.Cut }

// parts returns the number of micro-batches for a batch. The last may be padded with samples
// of weight zero.
func (f *Feed) parts(b []int) int { return (len(b) + f.rows() - 1) / f.rows() }

// Fill replaces the content of b with micro-batch micro of a step. Errors: ErrOption,
// dit.ErrSample, and errors of the cache.
func (f *Feed) Fill(b *data.Batch, step, micro int) error {
	left := micro
	for number, whole := range f.step(step) {
		if n := f.parts(whole); left >= n {
			left -= n
			continue
		}
		if left < 0 {
			break
		}
		from := left * f.rows()
		return f.fill(b, step, number*f.BatchSize+from, whole[from:min(from+f.rows(), len(whole))])
	}
	return fmt.Errorf("feed: %w: micro-batch %d of step %d, which has %d", ErrOption, micro, step, f.Micros(step))
}
