package cpu

import (
	"time"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/backend/cpu/internal/vec"
)

// Peak measures what the workers reach together: products of matrices in the
// nearest cache, and reading memory that is in none. The best of several tries
// counts; what else runs on the host lowers it.
func (d *Device) Peak() (backend.Peak, error) {
	p := backend.Peak{FlopsPerSecond: d.gemm.Peak()}
	const (
		size  = 256 << 20 // well beyond any cache
		piece = 1 << 20
		tries = 5
	)
	b, err := d.Alloc(size)
	if err != nil {
		return p, err
	}
	defer b.Free()
	x := view[float32](b.(*buffer).data, size/4)
	d.pool.Run(size/piece, func(i int) { // fresh pages are all the same one
		part := x[i*piece/4 : (i+1)*piece/4]
		for j := range part {
			part[j] = 1
		}
	})
	for range tries {
		start := time.Now()
		d.pool.Run(size/piece, func(i int) { vec.Sum(x[i*piece/4 : (i+1)*piece/4]) })
		p.BytesPerSecond = max(p.BytesPerSecond, size/time.Since(start).Seconds())
	}
	return p, nil
}
