package cache

import (
	"context"
	"fmt"
	"sync"

	"github.com/lorafuse/lorafuse/tensor"
)

// Encoders make the entries of a cache. Kinds of entries without an encoder are
// left alone. They are called from as many goroutines at once as
// BuildOptions.Workers says.
type Encoders struct {
	// Text encodes captions, and the empty prompt.
	Text func(text string) (Embedding, error)
	// TextWith takes the place of Text for models that see an image along with
	// the caption: the control image, or without one the image itself.
	TextWith func(text string, image []byte) (Embedding, error)
	// Image encodes the content of an image file, Control that of a control
	// image; where it is nil, Image does.
	Image, Control func(image []byte) (tensor.Tensor, error)
}

// BuildOptions change how Build works.
type BuildOptions struct {
	Workers int // entries to build at once; 0 is 1
	// Verify reads the tensors of every entry. Without it damage that leaves
	// the header whole is found when the entry is read.
	Verify   bool
	Progress func(Progress) // called after each entry, from one goroutine at a time
}

// Progress is how far Build has come.
type Progress struct {
	Entry       string // the file that is ready
	Built       bool   // it was made now
	Done, Total int
}

// Stats say what Build has done.
type Stats struct {
	Entries int // that the samples need
	Built   int // of them, now
}

// Build makes the entries of all samples that are missing or stale, and leaves
// the others as they are. After an error no more entries are begun; those that
// are ready stay. The error is the first one in the order of the samples.
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

// job is an entry and how it is made.
type job struct {
	slot
	build builder
}

// jobs are the entries of all samples, each once.
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

// building is the state of one Build.
type building struct {
	cache   *Cache
	jobs    []job
	options BuildOptions

	mu     sync.Mutex
	next   int
	done   int
	stats  Stats
	failed int // the first job that failed
	err    error
}

// work takes jobs in their order until there are none or one has failed: so
// every job before the first that fails has been begun, and which one that is
// does not depend on the number of workers.
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
