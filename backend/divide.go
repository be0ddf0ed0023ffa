package backend

import (
	"fmt"
	"math"
	"sync/atomic"

	"github.com/lorafuse/lorafuse/ir"
)

// Memory is a device whose memory its callers plan. They divide it: many small
// buffers in one large one, which lies in fewer and larger pages, parts of a buffer
// that are written at once and read one by one, and one arena for several programs.
// And they learn what programs take beside arenas and arguments before these are
// compiled.
type Memory interface {
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
	// Scratch is what it takes, in bytes, to have the programs compiled and to
	// run them, one at a time. Errors: ErrUnsupported.
	Scratch(programs ...*ir.Program) (int64, error)
	// SetPack allows copies of weights of at most limit bytes in all for programs
	// that are compiled from now on. A copy is made when it is first used, as long
	// as there is room, and lives as long as the buffer that it is of. A limit of 0
	// is half of the memory that is free now, and none with PackAlways. It gives the
	// limit: 0 where the device keeps no copies.
	SetPack(p Pack, limit int64) int64
	// PackedBytes is what the copies for programs take where there is room for
	// all. Errors: ErrUnsupported.
	PackedBytes(p Pack, programs ...*ir.Program) (int64, error)
}

// PartAlign is what the offsets of parts are multiples of, on all devices.
const PartAlign = 256

// Division is one stretch of memory as it is divided into buffers: what a
// [Memory] keeps of it.
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
