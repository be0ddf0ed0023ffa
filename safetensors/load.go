package safetensors

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"
)

// Load reads the views into the sink with LoadOptions.Threads concurrent
// readers, as planned by PlanLoad. The read strategy is chosen per file; the
// statistics report it with the reason.
//
// The first error ends the load: an error of the sink, ErrTruncated or ErrFault
// with file and tensor if a file has shrunk or cannot be read, ErrClosed, or the
// error of ctx. Load returns after all readers have stopped; the files cannot be
// closed until then.
func Load(ctx context.Context, views []*View, sink Sink, o LoadOptions) (LoadStats, error) {
	plan, err := PlanLoad(views, o)
	if err != nil {
		return LoadStats{}, err
	}
	return plan.Load(ctx, sink, o)
}

// Load reads the planned views into the sink, like the function Load. It uses
// only the options Threads and Strategy; the chunks are the plan's.
func (p *LoadPlan) Load(ctx context.Context, sink Sink, o LoadOptions) (LoadStats, error) {
	if err := o.check(); err != nil {
		return LoadStats{}, err
	}
	began := time.Now()
	release, err := p.acquire()
	if err != nil {
		return LoadStats{}, err
	}
	defer release()
	if s, ok := sink.(session); ok {
		if err := s.startLoad(p); err != nil {
			return LoadStats{}, err
		}
		defer s.end()
	}
	l := newLoader(p, sink, o)
	defer l.close()
	err = l.offerInPlace()
	if err == nil {
		err = l.run(ctx, o.threads())
	}
	return l.stats(time.Since(began)), err
}

// acquire keeps the files of the plan open until release is called.
func (p *LoadPlan) acquire() (release func(), err error) {
	var held []*mapping
	release = func() {
		for _, m := range held {
			m.release()
		}
	}
	for i := range p.runs {
		f := p.runs[i].origin.file
		if i > 0 && f == p.runs[i-1].origin.file {
			continue
		}
		if !f.mapping.acquire() {
			release()
			return nil, f.errClosed()
		}
		held = append(held, f.mapping)
	}
	return release, nil
}

// loader is the state of one load.
type loader struct {
	plan     *LoadPlan
	sink     Sink
	places   PartSink // the sink, if it is a PartSink
	strategy Strategy
	feeds    []*feed  // by origin
	cached   *contest // for chunks in the page cache
	uncached *contest
	inPlace  []bool // by run: the sink uses the mapping itself
	threads  int    // readers that have work
}

func newLoader(p *LoadPlan, sink Sink, o LoadOptions) *loader {
	l := &loader{plan: p, sink: sink, strategy: o.Strategy, inPlace: make([]bool, len(p.runs))}
	l.places, _ = sink.(PartSink)
	l.cached = newContest(len(p.Chunks), candidate{strategy: Pread}, candidate{strategy: Mmap, advantage: mmapAdvantage})
	l.uncached = newContest(len(p.Chunks), candidate{strategy: Pread}, candidate{strategy: Direct, advantage: directAdvantage})
	for i := range p.Chunks {
		o := p.runs[p.Chunks[i].run].origin
		if o.number >= len(l.feeds) {
			l.feeds = append(l.feeds, newFeed(o))
		}
		l.feeds[o.number].add(&p.Chunks[i])
	}
	return l
}

func (l *loader) close() {
	for _, f := range l.feeds {
		f.close()
	}
}

// offerInPlace offers mapped memory to a sink that can use it and records the
// runs that it accepts.
func (l *loader) offerInPlace() error {
	sink, ok := l.sink.(InPlaceSink)
	if !ok || l.strategy > Mmap {
		return nil
	}
	for i := range l.plan.runs {
		r := &l.plan.runs[i]
		if r.origin.memory == nil {
			continue
		}
		if _, keepsNone := l.sink.(residentSink); !keepsNone && !r.origin.file.mapping.pin() {
			return r.origin.file.errClosed()
		}
		c := l.plan.whole(i)
		data := r.origin.memory[r.begin:r.end:r.end]
		taken, err := sink.InPlace(&c, data)
		if err != nil {
			return err
		}
		l.inPlace[i] = taken
		if taken && r.origin.mapped() {
			// Pages read after this call come in large folios, which are mapped
			// a hundred times faster, also by later processes.
			_ = advise(data, AdviseHugePages)
		}
	}
	return nil
}

// run loads the chunks with the given number of readers, each starting at a
// different position.
func (l *loader) run(ctx context.Context, threads int) (failure error) {
	l.threads = min(threads, len(l.plan.Chunks))
	lanes := newLanes(l.plan.Chunks, l.threads)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var wg sync.WaitGroup
	var first sync.Once
	for i := range l.threads {
		wg.Go(func() {
			var w worker
			defer w.close()
			for {
				number, ok := lanes.nextChunk(i)
				if !ok {
					return
				}
				if err := l.load(ctx, &w, &l.plan.Chunks[number]); err != nil {
					first.Do(func() { failure = err; cancel() })
					return
				}
			}
		})
	}
	wg.Wait()
	return failure
}

// load loads one chunk into the sink.
func (l *loader) load(ctx context.Context, w *worker, c *Chunk) error {
	if ctx.Err() != nil {
		return fmt.Errorf("safetensors: load: %w", context.Cause(ctx))
	}
	f := l.feeds[l.plan.runs[c.run].origin.number]
	f.startChunk()
	defer f.end()
	if l.inPlace[c.run] {
		at, err := f.makeResident(c)
		if err != nil {
			return c.readError(at, err)
		}
		f.count(c, Mmap, c.Length, true)
		return nil
	}
	f.open(l.strategy)
	data, err := w.slot(ctx, l, c)
	if err != nil {
		return err
	}
	began := time.Now()
	strategy, judge := l.choose(f, c)
	at, err := w.fill(f, c, strategy)
	if errors.Is(err, errRefused) {
		f.refuse(err)
		strategy, judge = Pread, nil
		at, err = w.fill(f, c, strategy)
	}
	if err != nil {
		return c.readError(at, err)
	}
	took := time.Since(began)
	f.count(c, strategy, w.read, false)
	if judge != nil {
		judge.report(strategy, c.Length, took)
	}
	return l.sink.Done(c, data)
}

// choose returns the strategy for a chunk, and the contest to report its speed
// to, if any.
func (l *loader) choose(f *feed, c *Chunk) (Strategy, *contest) {
	if l.strategy != Auto {
		return f.possible(l.strategy), nil
	}
	judge := l.cached
	if !f.isCached(c) {
		judge = l.uncached
	}
	s, trial := judge.next()
	if p := f.possible(s); p != s || !trial {
		return p, nil
	}
	return s, judge
}

// tensorAt returns the view that contains the byte at offset, or the next one.
func (c *Chunk) tensorAt(offset int64) *View {
	for _, p := range c.Parts {
		if c.Offset+p.At+p.Length > offset {
			return c.plan.views[p.View]
		}
	}
	return c.plan.views[c.Parts[len(c.Parts)-1].View]
}

// readError returns the error of a failed read at offset.
func (c *Chunk) readError(offset int64, err error) error {
	path, name := c.File.path, c.tensorAt(offset).Name
	if err == io.EOF || err == io.ErrUnexpectedEOF {
		return &FormatError{Path: path, Tensor: name, ofTensor: true, Rule: ErrTruncated,
			Found: fmt.Sprintf("the end at byte %d", offset), Expected: fmt.Sprintf("one after %d", c.Offset+c.Length)}
	}
	return fmt.Errorf("safetensors: %s: tensor %s: byte %d: %w", path, quote(name), offset, err)
}
