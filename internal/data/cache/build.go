package cache

import (
	"context"
	"fmt"
	"sync"

	"github.com/lorafuse/lorafuse/tensor"
)

// Encoders compute the entries of a cache. Entries of a kind without an encoder are not built. Encoders are called by
// up to BuildOptions.Workers goroutines at once.
type Encoders struct {
	// Text encodes captions and the empty prompt.
	Text func(text string) (Embedding, error)
	// TextWith replaces Text for models that encode a caption together with an image: the control image, or the image
	// itself if there is none.
	TextWith func(text string, image []byte) (Embedding, error)
	// Image encodes the contents of an image file, Control the contents of a control image. A nil Control means Image.
	Image, Control func(image []byte) (tensor.Tensor, error)
}

// BuildOptions configures Build.
type BuildOptions struct {
	Workers int // maximum number of entries built at once; 0 is 1
	// Verify reads the tensors of every entry. Without it, damage that does not affect the header is found only when
	// the entry is read.
	Verify   bool
	Progress func(Progress) // called after each entry, from one goroutine at a time
}

// Progress reports the progress of Build.
type Progress struct {
	Entry       string // file of the finished entry
	Built       bool   // built by this call
	Done, Total int
}

// Stats summarizes a call of Build.
type Stats struct {
	Entries int // required by the samples
	Built   int // built by this call
}

// Build builds the missing and stale entries of all samples and keeps the others. After an error it starts no more
// entries; finished ones are kept. It returns the first error in sample order.
func (c *Cache) Build(ctx context.Context, samples []Sample, e Encoders, o BuildOptions) (Stats, error) {
	if o.Workers < 0 {
		return Stats{}, fmt.Errorf("cache: found %d workers, expected 0 or more: %w", o.Workers, ErrOption)
	}
	jobs := c.jobs(samples, e)
	b := &building{cache: c, jobs: jobs, options: o, stats: Stats{Entries: len(jobs)}, failed: len(jobs)}
	var workers sync.WaitGroup
	for range min(max(o.Workers, 1), len(jobs)) {
		workers.Go(func() { b.work(ctx) })
	}
	workers.Wait()
	return b.stats, b.err
}

// job is an entry and the function that builds it.
type job struct {
	slot
	build builder
}

// jobs returns the entries of all samples, without duplicates.
func (c *Cache) jobs(samples []Sample, e Encoders) []job {
	var jobs []job
	seen := map[string]string{}
	add := func(s slot, build builder) {
		if owner, ok := seen[s.path]; ok && owner == s.owner {
			return
		}
		seen[s.path] = s.owner
		jobs = append(jobs, job{s, build})
	}
	if e.Control == nil {
		e.Control = e.Image
	}
	if e.Text != nil && e.TextWith == nil {
		empty := c.emptySlot()
		add(empty, empty.buildText(discardImage(e.Text)))
	}
	for _, s := range samples {
		switch {
		case s.Caption == "":
		case e.TextWith != nil:
			for _, t := range []slot{c.textWithSlot(s.Caption, s.shown()), c.emptyWithSlot(s.Caption, s.shown())} {
				add(t, t.buildText(e.TextWith))
			}
		case e.Text != nil:
			t := c.textSlot(s.Caption)
			add(t, t.buildText(discardImage(e.Text)))
		}
		if e.Image != nil && s.Image != "" {
			i := c.imageSlot(s.Image)
			add(i, i.buildImage(e.Image))
		}
		if e.Control != nil && s.Control != "" {
			i := c.controlSlot(s.Control)
			add(i, i.buildImage(e.Control))
		}
	}
	return jobs
}

// building holds the state of one Build.
type building struct {
	cache   *Cache
	jobs    []job
	options BuildOptions

	mu     sync.Mutex
	next   int
	done   int
	stats  Stats
	failed int // index of the first failed job
	err    error
}

// work runs jobs in order until there are none left or one has failed. Every job before the first failing one has then
// been started, so which one that is does not depend on the number of workers.
func (b *building) work(ctx context.Context) {
	for {
		b.mu.Lock()
		n := b.next
		if b.err != nil || n == len(b.jobs) {
			b.mu.Unlock()
			return
		}
		b.next++
		b.mu.Unlock()

		job := b.jobs[n]
		built, err := b.cache.ensure(ctx, job.slot, job.build, b.options.Verify)
		b.finish(n, built, err)
	}
}

func (b *building) finish(n int, built bool, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if err != nil {
		if n < b.failed {
			b.failed, b.err = n, err
		}
		return
	}
	b.done++
	if built {
		b.stats.Built++
	}
	if b.options.Progress != nil {
		b.options.Progress(Progress{Entry: b.jobs[n].path, Built: built, Done: b.done, Total: len(b.jobs)})
	}
}
