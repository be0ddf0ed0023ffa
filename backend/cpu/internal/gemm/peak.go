package gemm

import "time"

// Peak measures how many floating-point operations a second the workers reach
// together where nothing but the multiplier holds them up, the best of several
// tries: the tile kernel on panels that stay in the nearest cache, or, where that
// cannot feed the multiplier, products of registers alone.
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
		a, b := s.a.take(depth*k.mr+k.mr*k.nr), s.b.take(depth*k.nr)
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
