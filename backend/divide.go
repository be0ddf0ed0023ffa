package backend

import (
	"fmt"
	"math"
	"sync/atomic"

	"github.com/lorafuse/lorafuse/internal/ir"
)

// Memory is implemented by devices that let callers plan their memory. One large allocation, with fewer and larger
// pages, can hold many small buffers; parts of a buffer can be written at once and read separately; and several programs
// can share an arena. Memory also reports what programs need in addition to arenas and arguments, before they are
// compiled.
type Memory interface {
	// AllocAll returns zeroed buffers of the given sizes in one memory block, which is freed with the
	// last of them. Errors: ErrOutOfMemory.
	AllocAll(sizes []int) ([]Buffer, error)
	// Part returns n bytes of b, from byte off, as a buffer. off must be a multiple of [PartAlign].
	// The part is invalid once b is freed; freeing the part has no effect.
	Part(b Buffer, off, n int) (Buffer, error)
	// CompileIn compiles p like Compile, with an arena of at least p.Arena bytes that the caller
	// provides. Programs that share an arena must not run at the same time, and each overwrites its
	// contents. Free it after the programs are closed.
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

// PartAlign is the alignment in bytes of the offsets of [Memory.Part], on all devices.
const PartAlign = 256

// BlockLayout is the division of one memory block into buffers, for implementations of
// [Memory.AllocAll].
type BlockLayout struct {
	Offsets []int // of the buffers
	Bytes   int   // of all
	left    atomic.Int64
}

// LayoutBlock returns a layout of consecutive buffers with these sizes in bytes, each at a multiple
// of align.
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

// Release must be called once for each buffer, when it is freed. It returns true for the last one:
// the block can then be freed.
func (d *BlockLayout) Release() bool { return d.left.Add(-1) == 0 }
