// Package backend says what a machine must offer to run programs: allocate,
// move bytes, compile and run. Backends know nothing of models, adapters,
// gradients or tokenizers. They register themselves under a name; the package
// backend/all brings in those that a build has.
package backend

import (
	"context"
	"errors"
	"slices"

	"github.com/lorafuse/lorafuse/ir"
	"github.com/lorafuse/lorafuse/tensor"
	"github.com/lorafuse/lorafuse/weights"
)

// Errors that backends wrap.
var (
	// ErrOutOfMemory: the device has less free memory than was asked for.
	ErrOutOfMemory = errors.New("out of memory")
	// ErrUnavailable: the backend is not in this build, or this host has no such device.
	ErrUnavailable = errors.New("backend unavailable")
	// ErrFaulty: the device is there, and does not compute what it should.
	ErrFaulty = errors.New("faulty device")
	// ErrUnsupported: the device cannot run an operation.
	ErrUnsupported = errors.New("unsupported operation")
	// ErrClosed: the device or executable was closed.
	ErrClosed = errors.New("closed")
	// ErrLost: the device has failed, and nothing more runs on it in this process.
	ErrLost = errors.New("device lost")
)

// Info describes a device.
type Info struct {
	Backend string `json:"backend"`
	Index   int    `json:"index"`
	Name    string `json:"name"`
	// UUID tells a GPU, or an instance of one, from all others, whatever its index
	// is here or elsewhere: hexadecimal digits as of a random UUID. Empty for
	// devices without one.
	UUID string `json:"uuid,omitempty"`
	// Memory is the device's memory in bytes, 0 if it is not known.
	Memory int64 `json:"memory_bytes"`
	// GPU says that the device is another processor than the host's.
	GPU bool `json:"gpu,omitempty"`
	// Unified says that the device computes in the host's memory: what it imports
	// is used where it lies.
	Unified bool `json:"unified_memory,omitempty"`
	// BatchInvariant says that it was opened with the option of that name.
	BatchInvariant bool `json:"batch_invariant,omitempty"`
	// Precision is that which it was opened with.
	Precision Precision `json:"-"`
	// Detail names what decides its speed: instruction set, threads.
	Detail string `json:"detail,omitempty"`
	// Rated is the most that the device can do by its data sheet, at the precision
	// that it was opened with: 0 where that is not known, and before it is opened.
	Rated Peak `json:"rated,omitzero"`
	// Quantizes are the types of blocks that a [Loader] makes on the device of
	// weights that lie in files as f32, f16 or bf16.
	Quantizes []tensor.DType `json:"quantizes,omitempty"`
}

// Converts reports whether a [Loader] makes elements of type to out of those of
// type from, on the device.
func (i Info) Converts(from, to tensor.DType) bool {
	switch from {
	case tensor.F32, tensor.F16, tensor.BF16:
		return slices.Contains(i.Quantizes, to)
	}
	return false
}

// Buffer is memory of a device.
type Buffer interface {
	Size() int // bytes
	Free()
}

// Fence is reached when the work before it is done.
type Fence interface {
	Wait(ctx context.Context) error
}

// Device runs programs. Its methods may be called from several goroutines. It does
// copies and runs as if in the order in which it was given them: a run reads what
// was uploaded before it, whether the upload was waited for or not.
//
// What some devices can do beside this are three interfaces: [Memory], [Loader] and
// [Meter]. What is known of a device without asking it to do anything is in [Info].
type Device interface {
	Info() Info
	// Supports reports whether the device runs the composite op itself;
	// primitives it must all run.
	Supports(op ir.Op, attr any, in []ir.Type) bool
	// Stores reports whether op may read an input, or write an output, that is of
	// f32 and lies in memory as elements of type as, of fewer bits: rounded once, to
	// nearest even, where it is written, and computed with in f32. Where it says so
	// for several places they may be so at once, each as it likes.
	Stores(op ir.Op, attr any, in []ir.Type, at ir.Place, as tensor.DType) bool
	// Alloc gives zeroed memory. Errors: ErrOutOfMemory.
	Alloc(bytes int) (Buffer, error)
	// Import gives a read-only buffer with the contents of src: in place
	// where the device shares the host's memory.
	Import(src weights.Data) (Buffer, error)
	// Upload copies src into dst from byte off on. src is the caller's again when
	// Upload returns.
	Upload(dst Buffer, off int, src []byte) (Fence, error)
	// Download copies from src, from byte off on, into dst.
	Download(dst []byte, src Buffer, off int) (Fence, error)
	// Compile prepares p and allocates its arena. Errors: ErrOutOfMemory, ErrUnsupported.
	Compile(p *ir.Program) (Executable, error)
	Close() error
}

// Args are the arguments of one run: a buffer for each of the program's Args,
// and the values of its bounded dimensions (Dims[0] is not read). Both
// slices are the caller's again when Run returns.
type Args struct {
	Buffers []Buffer
	Dims    []int
}

// Executable is a compiled program. Runs are done in the order in which they were
// given; several may be under way. One goroutine at a time gives runs and closes
// the executable; any may wait for fences.
type Executable interface {
	// Run enqueues one run. Where Flights are under way it waits for the first of
	// them, or until ctx ends. The fence is that of this run: it is reached when the
	// run is done, and gives its error, as often as it is asked, until Flights more
	// runs were given. A context that ends stops the run between two launches and
	// leaves written buffers undefined.
	Run(ctx context.Context, args Args) (Fence, error)
	// Close waits for all runs and frees what Compile has allocated.
	Close() error
}

// Flights is how many runs of an executable may be under way. Two would keep a
// device busy, which begins the second when the first ends. With four the host is
// also free to leave for a while, to fill batches or to wait for a disk; more would
// only have memory wait: each run has arguments of its own, and each upload behind
// one a piece of pinned memory.
const Flights = 4

// Done is a fence that is reached already.
type Done struct{}

// Wait returns at once.
func (Done) Wait(context.Context) error { return nil }
