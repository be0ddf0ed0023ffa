// Package pool runs the tasks of one operation on a fixed set of workers that
// stay alive between operations.
//
// A step of training is some thousands of short operations, each of which
// forks and joins. Starting goroutines for each costs microseconds; a worker
// that spins on an atomic for a moment before it parks joins in about a
// hundred nanoseconds.
package pool

import (
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"
)

// line separates data written by different cores by two cache lines, since the adjacent-line prefetcher fetches
// pairs.
type line [128]byte

// Pool is a set of workers. The goroutine that calls Run is one of them. A
// nil or closed Pool runs everything on the calling goroutine.
//
// Its methods are safe for concurrent use.
type Pool struct {
	workers int
	exits   sync.WaitGroup
	stop    atomic.Bool
	spin    atomic.Bool // false where spinning would keep a worker from its processor
	sleep   []sleeper   // of worker i; 0 is the caller

	mu    sync.Mutex // held by the run that has the workers
	n     int
	plain func(i int)         // the task of Run, or
	named func(worker, i int) // the task of RunWorker
	fail  atomic.Pointer[Panic]

	idleWork func(worker int) bool // see SetIdleWork

	queues []queue // one per active worker
	active int     // queues in use
	_      line
	runs   atomic.Uint64 // begun
	_      line
	done   atomic.Int64 // tasks finished
	_      line
}

// queue is the range of tasks that a worker claims first, in order, since consecutive tasks usually read consecutive
// memory.
type queue struct {
	left atomic.Int64 // tasks not yet claimed
	_    line
}

// New starts a pool of the given number of workers, the caller of Run
// included; below 1 it takes GOMAXPROCS. Close ends it.
func New(workers int) *Pool {
	if workers < 1 {
		workers = runtime.GOMAXPROCS(0)
	}
	p := &Pool{workers: workers, sleep: make([]sleeper, workers), queues: make([]queue, workers)}
	for i := range p.sleep {
		p.sleep[i].wake = make(chan struct{}, 1)
	}
	for i := 1; i < workers; i++ {
		p.exits.Add(1)
		go p.work(i)
	}
	return p
}

// SetIdleWork sets a function for workers that wait for others or for the next run. An idle worker calls f repeatedly
// until it returns false or there is work, so f must return within a microsecond. It must be set before the first
// run.
func (p *Pool) SetIdleWork(f func(worker int) bool) { p.idleWork = f }

// Workers returns the number of goroutines that share the tasks of a run, at least 1.
func (p *Pool) Workers() int {
	if p == nil {
		return 1
	}
	return p.workers
}

// Run calls task(i) once for every i in [0,n), on all workers and in no
// particular order, and returns when all calls have returned. It allocates
// nothing.
//
// When the workers are taken, because Run was called from inside a task or
// another goroutine is in a run, all tasks run on the calling goroutine. A
// panic in a task reaches the caller as a *Panic, after the tasks already
// begun have ended; those not yet begun are dropped.
func (p *Pool) Run(n int, task func(i int)) {
	if n <= 0 {
		return
	}
	if n == 1 || p.Workers() == 1 || !p.mu.TryLock() {
		inline(n, task)
		return
	}
	p.share(n, task, nil)
}

// RunWorker is like Run for tasks with per-worker state: worker is in [0,Workers()), and no two concurrent tasks, in
// any RunWorker of this pool, have the same one.
//
// It waits if another goroutine uses the workers. A task must not call RunWorker, which would deadlock, and panics
// instead; it may call Run.
func (p *Pool) RunWorker(n int, task func(worker, i int)) {
	if n <= 0 {
		return
	}
	if p == nil {
		inline(n, func(i int) { task(0, i) })
		return
	}
	if !p.mu.TryLock() {
		if insideTask() {
			panic("pool: RunWorker called from inside a task")
		}
		p.mu.Lock()
	}
	p.share(n, nil, task)
}

// Close ends the workers and waits for them. Later runs go on the calling
// goroutine. Closing twice does nothing.
func (p *Pool) Close() {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stop.Store(true)
	for i := range p.sleep {
		p.sleep[i].rouse()
	}
	p.exits.Wait()
}

// share runs the tasks on all workers. It holds p.mu, and releases it.
func (p *Pool) share(n int, plain func(i int), named func(worker, i int)) {
	p.n, p.plain, p.named = n, plain, named
	p.spin.Store(runtime.GOMAXPROCS(0) >= p.workers)
	p.done.Store(0)
	p.active = min(n, p.workers)
	for i := range p.active { // publishes the fields above
		p.queues[i].left.Store(int64(p.last(i) - p.last(i-1)))
	}
	p.runs.Add(1)
	drained := false
	defer func() {
		// Not drained: a task is ending this goroutine by Goexit, let it.
		if fail := p.join(); fail != nil && drained {
			panic(fail)
		}
	}()
	for i := 1; i < p.workers && i < n; i++ {
		p.sleep[i].rouse()
	}
	p.drain(0)
	drained = true
}

// join waits for the tasks that other workers have begun, gives the workers
// free and returns the first panic.
func (p *Pool) join() *Panic {
	n := int64(p.n)
	for p.done.Load() != n {
		p.await(0, func() bool { return p.done.Load() == n })
	}
	fail := p.fail.Swap(nil)
	p.plain, p.named = nil, nil
	p.mu.Unlock()
	return fail
}

// work runs the loop of worker id.
func (p *Pool) work(id int) {
	defer func() {
		if !p.stop.Load() { // a task ended the goroutine, as t.FailNow does
			go p.work(id)
			return
		}
		p.exits.Done()
	}()
	debug.SetPanicOnFault(true) // weights of a file that is cut short: a panic of the task
	for !p.stop.Load() {
		runs := p.runs.Load()
		p.drain(id)
		p.await(id, func() bool { return p.runs.Load() != runs || p.stop.Load() })
	}
}

// await lets a worker wait for a condition; it may return early.
func (p *Pool) await(worker int, ready func() bool) {
	spin := p.spin.Load()
	for spin && p.idleWork != nil && !ready() && p.idleWork(worker) {
	}
	p.sleep[worker].await(spin, ready)
}

// last returns the end of queue i, which is the start of the next one.
func (p *Pool) last(i int) int { return (i + 1) * p.n / p.active }

// drain claims tasks until none are left, of the worker's own queue first. Once
// a task is claimed, its run cannot end before the task does, so that the fields
// of the run may be read; a claim that comes too late for one run is a claim on
// the next or fails.
func (p *Pool) drain(worker int) {
	for i := range p.queues {
		q := (worker + i) % len(p.queues)
		for left := &p.queues[q].left; left.Load() > 0; {
			n := int(left.Add(-1))
			if n < 0 {
				break
			}
			p.call(worker, p.last(q)-1-n)
		}
	}
}

// call runs one claimed task and counts it, whichever way it ends.
func (p *Pool) call(worker, i int) {
	n, ended, returned := int64(p.n), int64(1), false
	defer func() {
		if !returned {
			p.fail.CompareAndSwap(nil, newPanic(recover()))
			for i := range p.queues {
				ended += max(0, p.queues[i].left.Swap(0))
			}
		}
		if p.done.Add(ended) == n {
			p.sleep[0].rouse()
		}
	}()
	if p.plain != nil {
		p.plain(i)
	} else {
		p.named(worker, i)
	}
	returned = true
}

// inline runs the tasks on the calling goroutine.
func inline(n int, task func(i int)) {
	returned := false
	defer func() {
		if !returned {
			if v := recover(); v != nil {
				panic(newPanic(v))
			}
		}
	}()
	for i := range n {
		task(i)
	}
	returned = true
}
