package gemm

import "time"

// Peak measures the peak rate of all workers in floating-point operations per second, the best of several tries: it
// runs the tile kernel on panels in the first-level cache, or, if that cannot feed the multiplier, multiplications in
// registers.
func (e *Engine) Peak() float64 {
	const (
		depth  = 256 // words: panels of 12 KiB and 32 KiB
		calls  = 2000
		window = 150 * time.Millisecond
	)
	k := e.k
	if e.Rounds() {
		k = k.pairs
	}
	task := func(int) {
		s := e.borrow()
		defer e.giveBack(s)
		a, b := s.a.alloc(depth*k.mr+k.mr*k.nr), s.b.alloc(depth*k.nr)
		c := a[depth*k.mr:]
		clear(a[:depth*k.mr+k.mr*k.nr])
		clear(b[:depth*k.nr])
		for range calls {
			k.tile(k.mr, depth, floats(a, 0), floats(b, 0), floats(c, 0), k.nr, k.nr, false, nil, 0)
		}
	}
	workers := e.pool.Workers()
	flops := float64(2*k.mr*k.nr*depth*k.pairSize) * calls * float64(workers)
	if k.peak != nil {
		task = func(int) { k.peak(calls * depth / max(1, k.run)) }
	}
	best := 0.0
	for began := time.Now(); time.Since(began) < window; {
		start := time.Now()
		e.pool.Run(workers, task)
		best = max(best, flops/time.Since(start).Seconds())
	}
	return best
}
