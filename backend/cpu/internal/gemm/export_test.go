package gemm

// PackAtMost makes e pack no more than n floats of A at a time.
func (e *Engine) PackAtMost(n int) { e.panelsMost = n }
