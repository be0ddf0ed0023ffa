package backend

import (
	"fmt"
	"math"
	"sync/atomic"
)

// Division is one stretch of memory as it is divided into buffers: what a
// [Divider] keeps of it.
type Division struct {
	Offsets []int // of the buffers
	Bytes   int   // of all
	left    atomic.Int64
}

// Divide lays out buffers of these sizes one behind the other, each at a multiple
// of align.
func Divide(sizes []int, align int) (*Division, error) {
	d := &Division{Offsets: make([]int, len(sizes))}
	for i, n := range sizes {
		if n < 0 || n > math.MaxInt-align-d.Bytes {
			return nil, fmt.Errorf("buffer %d of %d has %d bytes, after %d", i, len(sizes), n, d.Bytes)
		}
		d.Offsets[i] = d.Bytes
		d.Bytes += (n + align - 1) / align * align
	}
	d.left.Store(int64(len(sizes)))
	return d, nil
}

// Last is called once for each buffer, when it is freed, and true for the last:
// then the memory can be given back.
func (d *Division) Last() bool { return d.left.Add(-1) == 0 }
