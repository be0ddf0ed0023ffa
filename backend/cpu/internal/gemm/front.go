package gemm

// front is memory that is fetched front to back, a piece with each call of a
// kernel: where the next piece begins and where the last one ends, in bytes
// from where the kernels' addresses count. Of a zero front nothing is fetched.
type front struct{ next, end int }

// step is how far the next piece lies ahead of from, or 0 where there is none.
func (f *front) step(from, bytes int) (ahead int) {
	if f.next >= f.end {
		return 0
	}
	ahead = f.next - from
	f.next += bytes
	return ahead
}
