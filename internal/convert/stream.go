package convert

import (
	"context"
	"fmt"
	"hash/maphash"
	"io"
	"runtime"

	"github.com/lorafuse/lorafuse/internal/chunks"
	"github.com/lorafuse/lorafuse/tensor"
)

// chunkSize is the number of bytes of the output that are computed at a time.
// It is an integral number of elements of every type.
const chunkSize = 1 << 20

// seed is the seed of all checksums. They exist only in memory, between writing
// and reading back.
var seed = maphash.MakeSeed()

// pool holds the memory of the current chunks: a few per goroutine, however
// many tensors are written concurrently.
type pool struct {
	threads int
	free    chan *buffer
}

// buffer is the memory of one chunk.
type buffer struct {
	in, out []byte
	measure measure
	done    chan error

	number   int64
	sum      uint64
	rounding rounding
}

func newPool(threads int) *pool {
	if threads <= 0 {
		threads = runtime.GOMAXPROCS(0)
	}
	p := &pool{threads: threads, free: make(chan *buffer, 2*threads+1)}
	for range cap(p.free) {
		p.free <- &buffer{done: make(chan error, 1)}
	}
	return p
}

// stream returns the function that writes a tensor: chunks are computed in
// parallel and written in order.
func (w *writer) stream(t *target) func(io.Writer) error {
	return func(out io.Writer) error {
		t.rounding.reset()
		t.sums = make([]uint64, chunks.Count(t.size, chunkSize))
		if len(t.sums) == 1 { // most tensors are small: nothing to parallelize
			b := <-w.pool.free
			defer func() { w.pool.free <- b }()
			return w.finish(out, t, b, w.compute(t, b, 0))
		}
		ctx, cancel := context.WithCancel(w.ctx)
		defer cancel()
		queue := w.start(ctx, t)
		for b := range queue {
			err := w.finish(out, t, b, <-b.done)
			w.pool.free <- b
			if err != nil {
				cancel()
				for b := range queue { // wait for the running computations
					<-b.done
					w.pool.free <- b
				}
				return err
			}
		}
		return w.ctx.Err()
	}
}

// start computes the chunks of a tensor and returns their buffers in order; wait
// for each buffer before using it.
func (w *writer) start(ctx context.Context, t *target) <-chan *buffer {
	queue := make(chan *buffer, cap(w.pool.free))
	running := make(chan struct{}, w.pool.threads)
	go func() {
		defer close(queue)
		for n := range t.sums {
			var b *buffer
			select {
			case b = <-w.pool.free:
			case <-ctx.Done():
				return
			}
			running <- struct{}{}
			queue <- b
			go func() {
				err := w.compute(t, b, int64(n))
				<-running
				b.done <- err
			}()
		}
	}()
	return queue
}

// compute reads a chunk and converts it.
func (w *writer) compute(t *target, b *buffer, number int64) error {
	if err := w.ctx.Err(); err != nil {
		return err
	}
	from := number * chunkSize
	length := min(chunkSize, t.size-from)
	b.number = number
	b.out = sized(b.out, length)
	if t.to == tensor.Invalid {
		if err := readFull(t, b.out, from); err != nil {
			return err
		}
		b.sum = maphash.Bytes(seed, b.out)
		return nil
	}
	in, out := int64(t.from.Size()), int64(t.to.Size())
	b.in = sized(b.in, length/out*in)
	if err := readFull(t, b.in, from/out*in); err != nil {
		return err
	}
	if err := tensor.Convert(b.out, t.to, b.in, t.from); err != nil {
		return fmt.Errorf("tensor %q: %w", t.name, err)
	}
	b.sum = maphash.Bytes(seed, b.out)
	var err error
	if b.rounding, err = b.measure.compare(t, b.in, b.out); err != nil {
		return fmt.Errorf("tensor %q: %w", t.name, err)
	}
	return nil
}

func sized(b []byte, n int64) []byte {
	if int64(cap(b)) < n {
		return make([]byte, n)
	}
	return b[:n]
}

// readFull fills data from an offset in the source of a target.
func readFull(t *target, data []byte, at int64) error {
	n, err := t.view.ReadAt(data, at)
	if n == len(data) {
		return nil // io.EOF may accompany the last bytes
	}
	return err
}

// finish writes a chunk and records its checksum and rounding errors.
func (w *writer) finish(out io.Writer, t *target, b *buffer, err error) error {
	if err != nil {
		return err
	}
	t.sums[b.number] = b.sum
	t.rounding.add(&b.rounding)
	if _, err := out.Write(b.out); err != nil {
		return err
	}
	n := int64(len(b.out))
	if t.to != tensor.Invalid {
		n = int64(len(b.in))
	}
	w.progress(n)
	return nil
}
