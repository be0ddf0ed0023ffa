package cpu

import (
	"time"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/internal/vec"
)

// Peak measures the peak rates of all workers together: matrix multiplication in the innermost cache, and reading
// uncached memory. It returns the best of several tries; other load on the host lowers it.
func (d *Device) Peak() (backend.Peak, error) {
	p := backend.Peak{FlopsPerSecond: d.gemm.Peak()}
	const (
		size  = 256 << 20 // well beyond any cache
		tries = 5
	)
	b, err := d.Alloc(size)
	if err != nil {
		return p, err
	}
	defer b.Free()
	x := view[float32](b.(*buffer).data, size/4)
	d.pool.Run(size/readPiece, func(i int) { // fresh pages are all the same one
		part := x[i*readPiece/4 : (i+1)*readPiece/4]
		for j := range part {
			part[j] = 1
		}
	})
	for range tries {
		start := time.Now()
		if err := d.Read([]backend.Buffer{b}); err != nil {
			return p, err
		}
		p.BytesPerSecond = max(p.BytesPerSecond, size/time.Since(start).Seconds())
	}
	return p, nil
}

// readPiece is the number of bytes that one worker reads at a time.
const readPiece = 1 << 20

// Read adds the bytes of buffers up, as if they were numbers, with all workers.
// A few bytes at the end of a buffer may be left out.
func (d *Device) Read(buffers []backend.Buffer) error {
	var parts [][]float32
	for _, b := range buffers {
		data, err := bytesOf(b)
		if err != nil {
			return err
		}
		for x := view[float32](data, len(data)/4); len(x) > 0; {
			n := min(len(x), readPiece/4)
			parts, x = append(parts, x[:n]), x[n:]
		}
	}
	d.pool.Run(len(parts), func(i int) { vec.Sum(parts[i]) })
	return nil
}
