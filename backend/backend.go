// Package backend defines the interface of devices that run programs: allocate memory, copy bytes, compile and run.
// Backends are independent of models, adapters, gradients and tokenizers. Each registers itself under a name;
// importing package backend/all registers all backends of a build. [Open] opens a device.
package backend

import (
	"context"
	"errors"
	"slices"

	"github.com/lorafuse/lorafuse/internal/ir"
	"github.com/lorafuse/lorafuse/internal/weights"
	"github.com/lorafuse/lorafuse/tensor"
)

// Errors that backends wrap.
var (
	// ErrOutOfMemory: the device has less free memory than was asked for.
	ErrOutOfMemory = errors.New("out of memory")
	// ErrUnavailable: the backend is not in this build, or this host has no such device.
	ErrUnavailable = errors.New("backend unavailable")
	// ErrFaulty: the device exists but computes wrong results.
	ErrFaulty = errors.New("faulty device")
	// ErrUnsupported: the device cannot run an operation.
	ErrUnsupported = errors.New("unsupported operation")
	// ErrClosed: the device or executable was closed.
	ErrClosed = errors.New("closed")
	// ErrTimeout: the device or the system stopped work because of its duration. The device remains usable.
	ErrTimeout = errors.New("device timeout")
	// ErrLost: the device has failed, and nothing more runs on it in this process.
	ErrLost = errors.New("device lost")
)

// Info describes a device.
type Info struct {
	Backend string `json:"backend"`
	Index   int    `json:"index"`
	Name    string `json:"name"`
	// UUID identifies a GPU or a GPU instance, independent of its index: hexadecimal digits like a random UUID. Empty
	// for devices without one.
	UUID string `json:"uuid,omitempty"`
	// Memory is the device's memory in bytes, 0 if it is not known.
	Memory int64 `json:"memory_bytes"`
	// GPU reports whether the device is a processor other than the host's.
	GPU bool `json:"gpu,omitempty"`
	// Unified reports whether the device shares the host's memory, so that imports are used in place.
	Unified bool `json:"unified_memory,omitempty"`
	// Blocks reports whether the device reads weights in block types of other programs ([tensor.DType.Foreign]).
	Blocks bool `json:"-"`
	// Replays reports whether a run costs the host less if an earlier run had the same sizes, because the device has
	// recorded its launches. Callers then pad inputs to few sizes.
	Replays bool `json:"-"`
	// BatchInvariant is the option that the device was opened with.
	BatchInvariant bool `json:"batch_invariant,omitempty"`
	// Precision is the precision that the device was opened with.
	Precision Precision `json:"-"`
	// Detail describes features that decide the speed: instruction set, threads.
	Detail string `json:"detail,omitempty"`
	// Rated is the peak rate by the data sheet, at the precision of the device. Zero means unknown or not opened yet.
	Rated Peak `json:"rated,omitzero"`
	// Quantizes are the block types to which a [Loader] converts weights of f32, f16 or bf16 on the device.
	Quantizes []tensor.DType `json:"quantizes,omitempty"`
}

// Converts reports whether a [Loader] can convert elements of type from to type out on the device.
func (i Info) Converts(from, to tensor.DType) bool {
	switch from {
	case tensor.F32, tensor.F16, tensor.BF16:
		return slices.Contains(i.Quantizes, to)
	}
	return false
}

// Buffer is a block of device memory.
type Buffer interface {
	Size() int // bytes
	Free()
}

// Fence signals the end of a run or a copy. Wait returns its error.
type Fence interface {
	Wait(ctx context.Context) error
}

// Device runs programs. Its methods may be called concurrently. Copies and runs take effect in the order of the
// calls: a run sees every earlier upload, even if the caller has not waited for it.
//
// Optional features are three interfaces: [Memory], [Loader] and [Meter]. Static properties of a device are in
// [Info].
type Device interface {
	Info() Info
	// Supports reports whether the device runs the composite op itself. All devices run all primitives.
	Supports(op ir.Op, attr any, in []ir.Type) bool
	// Stores reports whether op may read an f32 input, or write an f32 output, that is stored as the narrower type
	// as. Values are rounded to nearest even once, when they are written, and computed with in f32. If it returns true
	// for several places, any combination of them is allowed.
	Stores(op ir.Op, attr any, in []ir.Type, at ir.Place, as tensor.DType) bool
	// Alloc returns zeroed memory. Errors: ErrOutOfMemory.
	Alloc(bytes int) (Buffer, error)
	// Import returns a read-only buffer with the contents of src, in place if the device shares the host's memory.
	Import(src weights.Data) (Buffer, error)
	// Upload copies src to dst, starting at byte off. The caller may reuse src when Upload has
	// returned.
	Upload(dst Buffer, off int, src []byte) (Fence, error)
	// Download copies len(dst) bytes of src, starting at byte off, to dst. dst is complete when the
	// fence signals.
	Download(dst []byte, src Buffer, off int) (Fence, error)
	// Compile prepares p and allocates its arena. Errors: ErrOutOfMemory, ErrUnsupported.
	Compile(p *ir.Program) (Executable, error)
	Close() error
}

// Args are the arguments of one run: a buffer for each of the program's Args, and the values of its
// bounded dimensions (Dims[0] is not used). The caller may reuse both slices when Run has returned.
type Args struct {
	Buffers []Buffer
	Dims    []int
}

// Executable is a compiled program. Runs are executed in the order of the calls, and several may be
// in progress. Only one goroutine at a time may call Run and Close; any goroutine may wait for
// fences.
type Executable interface {
	// Run enqueues one run. If [MaxInFlight] runs are in progress, it waits for the oldest one, or until ctx ends. The
	// fence signals the end of this run and returns its error on every call, until MaxInFlight more runs have been
	// enqueued. If ctx ends, the run stops between two launches and leaves the written buffers undefined.
	Run(ctx context.Context, args Args) (Fence, error)
	// Close waits for all runs and frees what Compile has allocated.
	Close() error
}

// MaxInFlight is the maximum number of runs of an executable in progress. Two are enough to keep a device busy. With four
// the host can also spend time filling batches or waiting for a disk. More would waste memory, because each run has
// its own arguments and each pending upload its own pinned memory.
const MaxInFlight = 4

// Done is the Fence of work that has already ended without an error.
type Done struct{}

// Wait returns at once.
func (Done) Wait(context.Context) error { return nil }
