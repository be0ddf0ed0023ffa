package backend

import (
	"fmt"
	"math"
	"sync/atomic"

	"github.com/lorafuse/lorafuse/internal/ir"
)

// Memory is implemented by devices that let callers plan their memory: many small buffers in one large allocation
// (fewer and larger pages), parts of a buffer that are written at once and read separately, and one arena for several
// programs. It also reports the memory that programs need in addition to arenas and arguments, before they are
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
	// Scratch returns the memory in bytes that compiling the programs and running them, one at a time, takes in
	// addition to arenas and arguments. Errors: ErrUnsupported.
	Scratch(programs ...*ir.Program) (int64, error)
	// SetPack allows packed copies of weights, of at most limit bytes in all, for programs that are compiled later. A
	// copy is made on first use if the limit allows it, and lives as long as the buffer that it copies. A limit of 0
	// means half of the free memory, or no limit with PackAlways. SetPack returns the limit: 0 if the device keeps no
	// copies.
	SetPack(p Pack, limit int64) int64
	// PackedBytes returns the size of all packed copies that the programs would use without a limit. Errors:
	// ErrUnsupported.
	PackedBytes(p Pack, programs ...*ir.Program) (int64, error)
}

// PartAlign divides the offsets of parts, on all devices.
const PartAlign = 256

// BlockLayout is a memory block divided into buffers. A [Memory] keeps one per block.
type BlockLayout struct {
	Offsets []int // of the buffers
	Bytes   int   // of all
	left    atomic.Int64
}

// LayoutBlock lays out buffers of these sizes consecutively, each at a multiple of align.
func LayoutBlock(sizes []int, align int) (*BlockLayout, error) {
	d := &BlockLayout{Offsets: make([]int, len(sizes))}
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

// Release is called once for each buffer, when it is freed, and true for the last:
// then the memory can be given back.
func (d *BlockLayout) Release() bool { return d.left.Add(-1) == 0 }
