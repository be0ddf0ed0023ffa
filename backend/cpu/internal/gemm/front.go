package gemm

// front fetches memory front to back, a stretch with each call of a
// kernel: where the next one begins and where the last one ends, in bytes
// from where the kernels' addresses count. Of a zero front nothing is fetched.
type front struct{ next, end int }

// step is how far the next stretch lies ahead of from, or 0 where there is none.
func (f *front) step(from, bytes int) (ahead int) {
	if f.next >= f.end {
		return 0
	}
	ahead = f.next - from
	f.next += bytes
	return ahead
}
