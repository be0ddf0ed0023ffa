package backend

import (
	"fmt"
	"math"
	"sync/atomic"

	"github.com/lorafuse/lorafuse/ir"
)

// Divider is a device whose memory its callers can divide: many small buffers in
// one large one, which lies in fewer and larger pages, parts of a buffer that are
// written at once and read one by one, and one arena for several programs.
type Divider interface {
	// AllocAll gives a zeroed buffer of each size. Their memory is one, and is
	// given back when the last of them is freed. Errors: ErrOutOfMemory.
	AllocAll(sizes []int) ([]Buffer, error)
	// Part is n bytes of a buffer, from byte off on, as a buffer: off is a
	// multiple of [PartAlign]. It is of no use once b is freed, and freeing it
	// gives nothing back.
	Part(b Buffer, off, n int) (Buffer, error)
	// CompileIn is Compile with the arena of the caller, of p.Arena bytes or
	// more. Programs that share one must not run at the same time; what one
	// leaves there is lost when another runs. The arena is freed after them.
	CompileIn(p *ir.Program, arena Buffer) (Executable, error)
}

// PartAlign is what the offsets of parts are multiples of, on all devices.
const PartAlign = 256

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
