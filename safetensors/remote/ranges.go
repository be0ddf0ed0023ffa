package remote

import (
	"context"
	"io"
	"sync"
)

// leastRange is the size below which a read is not split: another request costs
// more than it saves.
const leastRange = 1 << 20

// open requests the first bytes of the file and takes size and version from the
// response.
func (r *ReaderAt) open() error {
	return r.persist(r.ctx, func() error {
		a, err := r.ask(r.ctx, 0, r.options.Head)
		if err != nil {
			return err
		}
		defer a.close()
		r.version = a.version
		r.head = make([]byte, a.length)
		_, err = a.read(r.head)
		return err
	})
}

// fetch fills p with the bytes from offset off, which the file must have, in
// ranges that are fetched concurrently. It returns the number of leading bytes
// of p that are complete.
func (r *ReaderAt) fetch(p []byte, off int64) (n int, err error) {
	ctx, cancel := context.WithCancel(r.ctx)
	defer cancel()
	size := r.rangeSize(len(p))
	count := (len(p) + size - 1) / size
	f := fetching{got: make([]int, count), cancel: cancel}
	var wg sync.WaitGroup
	work := func() {
		for i, ok := f.nextRange(); ok; i, ok = f.nextRange() {
			part := p[i*size : min((i+1)*size, len(p))]
			got, err := r.fetchRange(ctx, part, off+int64(i*size))
			f.done(i, got, err)
		}
	}
	for range min(count, r.options.Parallel) - 1 {
		wg.Go(work)
	}
	work()
	wg.Wait()
	for i := range f.got {
		n += f.got[i]
		if f.got[i] < size { // the last range, or a failed one
			break
		}
	}
	return n, f.err
}

// rangeSize returns the size of the ranges of a read of n bytes.
func (r *ReaderAt) rangeSize(n int) int {
	most := int(r.options.Range)
	return max(min(leastRange, most), min(most, (n+r.options.Parallel-1)/r.options.Parallel))
}

// fetching is the state of one fetch.
type fetching struct {
	mu     sync.Mutex
	next   int
	got    []int // bytes by range
	err    error // the first error; others may be its consequences
	cancel context.CancelFunc
}

// nextRange returns the index of the next range to fetch.
func (f *fetching) nextRange() (i int, ok bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err != nil || f.next == len(f.got) {
		return 0, false
	}
	f.next++
	return f.next - 1, true
}

func (f *fetching) done(i, got int, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.got[i] = got
	if err != nil && f.err == nil {
		f.err = err
		f.cancel()
	}
}

// fetchRange fills p with the bytes from offset off. It continues interrupted
// responses.
func (r *ReaderAt) fetchRange(ctx context.Context, p []byte, off int64) (n int, err error) {
	err = r.persist(ctx, func() error {
		a, err := r.ask(ctx, off+int64(n), int64(len(p)-n))
		if err != nil {
			return err
		}
		defer a.close()
		got, err := a.read(p[n:])
		n += got
		return err
	})
	return n, err
}

// read fills p, whose length is the length announced by the response.
func (a *answer) read(p []byte) (n int, err error) {
	for n < len(p) {
		got, err := a.body.Read(p[n:])
		n += got
		a.alive()
		switch {
		case n == len(p):
		case err == io.EOF:
			return n, a.failure(io.ErrUnexpectedEOF)
		case err != nil:
			return n, a.failure(err)
		}
	}
	// Reading a response to its end allows the next request to reuse the
	// connection.
	if more, _ := a.body.Read(make([]byte, 1)); more > 0 {
		return n, badAnswer("more than the %d bytes that it announces", len(p))
	}
	return n, nil
}
