package remote

import (
	"context"
	"io"
	"sync"
)

// leastRange is the size below which a read is not split: asking costs more than
// what is gained.
const leastRange = 1 << 20

// open asks for the first bytes, and learns everything else from the answer.
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

// fetch fills p with the bytes from off on, which the file has, in ranges that
// are asked for at the same time. It returns how many bytes from the first on
// are there.
func (r *ReaderAt) fetch(p []byte, off int64) (n int, err error) {
	ctx, cancel := context.WithCancel(r.ctx)
	defer cancel()
	size := r.rangeSize(len(p))
	count := (len(p) + size - 1) / size
	f := fetching{got: make([]int, count), cancel: cancel}
	var wg sync.WaitGroup
	work := func() {
		for i, ok := f.take(); ok; i, ok = f.take() {
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
		if f.got[i] < size { // the last one, or one that has failed
			break
		}
	}
	return n, f.err
}

// rangeSize is the size of the ranges of a read of n bytes.
func (r *ReaderAt) rangeSize(n int) int {
	most := int(r.options.Range)
	return max(min(leastRange, most), min(most, (n+r.options.Parallel-1)/r.options.Parallel))
}

// fetching is the state of one fetch.
type fetching struct {
	mu     sync.Mutex
	next   int
	got    []int // bytes by number of the range
	err    error // the first; others may only follow from it
	cancel context.CancelFunc
}

// take returns the number of a range that is still to be fetched.
func (f *fetching) take() (i int, ok bool) {
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

// fetchRange fills p with the bytes from off on. What breaks off is continued.
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

// read fills p, which is as long as the answer says that it is.
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
	// An answer that has ended leaves its connection to the next one.
	if more, _ := a.body.Read(make([]byte, 1)); more > 0 {
		return n, badAnswer("more than the %d bytes that it announces", len(p))
	}
	return n, nil
}
