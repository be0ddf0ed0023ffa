package gemm

// front is the prefetch range of a kernel: memory is fetched from front to back, one block per call. next is the
// start of the next block and end the end of the last one, in bytes relative to the kernel's addresses. A zero front
// fetches nothing.
type front struct{ next, end int }

// step advances to the next block and returns its distance from from, or 0 if there is none left.
func (f *front) step(from, bytes int) (ahead int) {
	if f.next >= f.end {
		return 0
	}
	ahead = f.next - from
	f.next += bytes
	return ahead
}
