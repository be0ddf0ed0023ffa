package gemm

// front says what a kernel prefetches with each of its calls: memory is fetched from front
// to back, a stretch per call. next is where the next stretch begins and end where the last
// one ends, in bytes from where the addresses of the kernel count. A zero front fetches
// nothing.
type front struct{ next, end int }

// step takes the next stretch and gives how far it lies ahead of from, or 0 where there is
// none left.
func (f *front) step(from, bytes int) (ahead int) {
	if f.next >= f.end {
		return 0
	}
	ahead = f.next - from
	f.next += bytes
	return ahead
}
