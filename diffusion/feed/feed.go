// Package feed gives diffusion transformers what they are trained on: pictures of a cache
// on their way from noise, in batches of one size. Everything that is drawn at random (the
// order, the noise and how much there is of it, the captions that are dropped) is a
// function of a seed, the step and the sample, so that a resumed run goes on as an unbroken
// one would have.
package feed

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"sync"

	"github.com/lorafuse/lorafuse/data"
	"github.com/lorafuse/lorafuse/data/cache"
	"github.com/lorafuse/lorafuse/diffusion/dit"
	"github.com/lorafuse/lorafuse/diffusion/flow"
)

// ErrOption is wrapped where no batches can be made as the options say.
var ErrOption = errors.New("invalid option")

// Scale brings the values of latents, as an autoencoder gives them, to those that a
// transformer takes, in place.
type Scale interface{ Normalise(z dit.Latent) }

// Options say what is fed, and how.
type Options struct {
	Samples []cache.Sample
	Cache   *cache.Cache // has an entry for each of them
	Scale   Scale        // nil: latents in the cache are as the transformer takes them
	Fold    int          // places of them along each side that are one of the transformer's; 0 is 1
	Model   dit.Transformer

	Table     flow.Table // the noise levels of training
	Timesteps flow.Timesteps
	Weighting flow.Weighting
	Guidance  float32 // that models which were distilled are told
	// CaptionDropout is the part of the captions that give way to the empty prompt.
	CaptionDropout float64

	BatchSize    int // samples of a micro-batch
	Accumulation int // micro-batches of a step; 0 is 1
	// Cut is in how many parts each micro-batch is computed; 0 is 1. The samples of a step,
	// and what is drawn for them, do not depend on it. BatchSize is a multiple.
	Cut      int
	Seed     uint64
	Shuffle  bool // a new order in each epoch
	DropLast bool // leave out samples that do not fill a batch, and batches that do not fill a step
}

// Feed gives the micro-batches of a run: it is what a train.Run takes for its rows. Steps
// are counted over all epochs, each of which has every sample once. It is safe for
// concurrent use.
type Feed struct {
	Options
	pictures []picture
	unkeyed  int // of them
	buckets  []bucket
	batches  int // of an epoch
	steps    int // of an epoch
	bounds   map[string]int

	mu    sync.Mutex
	epoch int // whose order is at hand
	order []batch
}

// New looks at the entries of all samples, and reads the values of those without a key.
// Errors: ErrOption, dit.ErrSample where an entry is none that the transformer can take,
// with its file, and those of [cache.Cache.Outline].
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
	f := &Feed{Options: o, epoch: -1}
	if err := f.look(ctx); err != nil {
		return nil, err
	}
	f.settle()
	if f.steps == 0 {
		return nil, fmt.Errorf("feed: %w: %d pictures of %d sizes do not fill a step of batches of %d × %d, and those that do not are left out (drop_last)",
			ErrOption, len(f.pictures), len(f.buckets), o.BatchSize, o.Accumulation)
	}
	return f, nil
}

// Recut is the same feed with micro-batches in n parts. Errors: ErrOption.
func (f *Feed) Recut(n int) (*Feed, error) {
	if n < 1 || f.BatchSize%n != 0 {
		return nil, fmt.Errorf("feed: %w: found batches of %d cut in %d, expected a divisor", ErrOption, f.BatchSize, n)
	}
	c := &Feed{Options: f.Options, pictures: f.pictures, unkeyed: f.unkeyed, buckets: f.buckets, epoch: -1}
	c.Cut = n
	c.settle()
	return c, nil
}

// StepsPerEpoch is the number of optimizer steps of one pass over the samples.
func (f *Feed) StepsPerEpoch() int { return f.steps }

// Micros is the number of micro-batches of a step, 0 for a negative step.
func (f *Feed) Micros(step int) (n int) {
	for _, b := range f.step(step) {
		n += f.parts(b)
	}
	return n
}

// LossTokens is the number of samples of a step: what the sum of their losses is divided by.
func (f *Feed) LossTokens(step int) (n int) {
	for _, b := range f.step(step) {
		n += len(b)
	}
	return n
}

// Tokens is the same number: what speed is told in.
func (f *Feed) Tokens(step int) int { return f.LossTokens(step) }

// Unit is what Tokens counts.
func (f *Feed) Unit() string { return "images" }

// MaxTokens is the most tokens of texts and pictures that a micro-batch has.
func (f *Feed) MaxTokens() int { return f.rows() * f.bounds[tokens] }

// Bounds are the largest sizes of the axes of micro-batches.
func (f *Feed) Bounds() map[string]int { return f.bounds }

// Unkeyed is the number of samples with an entry that does not say what it was made of, as
// other programs write them: whether it belongs to its source nobody can know.
func (f *Feed) Unkeyed() int { return f.unkeyed }

// Digest is a SHA-256 of what the entries of all samples hold, in their order.
func (f *Feed) Digest() [sha256.Size]byte {
	h := sha256.New()
	for _, p := range f.pictures {
		fmt.Fprintf(h, "%q\n", p.sums)
	}
	return [sha256.Size]byte(h.Sum(nil))
}

// String says how an epoch is made up, for a summary.
func (f *Feed) String() string {
	sizes := "one size"
	if n := len(f.buckets); n > 1 {
		sizes = fmt.Sprintf("%d sizes", n)
	}
	return fmt.Sprintf("%d pictures of %s, %d steps per epoch", len(f.pictures), sizes, f.steps)
}

// rows is the number of samples of a micro-batch.
func (f *Feed) rows() int { return f.BatchSize / f.Cut }

// parts is how many micro-batches the samples of a batch fill, the last of them perhaps
// with samples that count for nothing.
func (f *Feed) parts(b batch) int { return (len(b) + f.rows() - 1) / f.rows() }

// Fill puts micro-batch micro of a step in the place of what b has. Errors: ErrOption,
// dit.ErrSample, and those of the cache.
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
