// Package chunks divides long runs of bytes into chunks, which are processed by
// one goroutine per core.
package chunks

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/lorafuse/lorafuse/internal/fork"
)

// A Chunk is part of a run of bytes.
type Chunk struct {
	Run          int   // index of the run
	Number       int   // index of the chunk within the run
	From, Length int64 // position within the run
}

// Options configure the size of chunks, the number of goroutines and progress
// reports.
type Options struct {
	// Size is the length of a chunk; the last one of a run may be shorter.
	Size int64
	// Threads is the number of goroutines. Zero means one per core available to
	// the program.
	Threads int
	// Progress, if not nil, is called with the number of bytes done and the
	// total. Calls are sequential.
	Progress func(done, total int64)
}

// Each divides runs of the given lengths into chunks and calls a function for
// each chunk, run after run. Every goroutine calls start to get its own
// function, which may have its own memory. An empty run has no chunks.
//
// Each ends with the first error, or the error of ctx, after the running calls
// have returned.
func Each(ctx context.Context, lengths []int64, o Options, start func() func(Chunk) error) error {
	d := dealer{lengths: lengths, size: o.Size}
	progress := Progress{Report: o.Progress}
	count := int64(0)
	for _, n := range lengths {
		progress.Total += n
		count += Count(n, o.Size)
	}
	threads := o.Threads
	if threads <= 0 {
		threads = runtime.GOMAXPROCS(0)
	}
	var wg fork.Group
	var failed atomic.Bool
	var once sync.Once
	var first error
	for range min(int64(threads), count) {
		wg.Go(func() {
			do := start()
			for !failed.Load() && ctx.Err() == nil {
				p, ok := d.deal()
				if !ok {
					return
				}
				if err := do(p); err != nil {
					once.Do(func() { first = err })
					failed.Store(true)
					return
				}
				progress.Add(p.Length)
			}
		})
	}
	wg.Wait()
	if first != nil {
		return first
	}
	return ctx.Err()
}

// Count returns the number of chunks of a run.
func Count(length, size int64) int64 { return (length + size - 1) / size }

// dealer distributes the chunks in order.
type dealer struct {
	lengths []int64
	size    int64

	mu     sync.Mutex
	run    int
	number int
}

func (d *dealer) deal() (Chunk, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for d.run < len(d.lengths) {
		from := int64(d.number) * d.size
		if left := d.lengths[d.run] - from; left > 0 {
			d.number++
			return Chunk{d.run, d.number - 1, from, min(left, d.size)}, true
		}
		d.run, d.number = d.run+1, 0
	}
	return Chunk{}, false
}

// Progress adds up the bytes done by concurrent goroutines.
type Progress struct {
	Total  int64                   // set before the first Add
	Report func(done, total int64) // called sequentially; may be nil

	mu   sync.Mutex
	done int64
}

// Add reports n more bytes as done.
func (p *Progress) Add(n int64) {
	if p.Report == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.done += n
	p.Report(p.done, p.Total)
}
