package gpu

import "github.com/lorafuse/lorafuse/backend"

// Driver is the interface between a Device and the driver of one kind of GPU. Jobs run one at a time, in the order in
// which they were sent; each is a turn of the device. Only jobs call the driver, except that Send, Explain and Load
// are called outside of turns.
type Driver interface {
	// Send has j performed in its turn. Errors: backend.ErrClosed.
	Send(j Job) error
	// Explain adds the meaning of a driver's error. Errors: backend.ErrLost if the device can no longer run anything.
	Explain(err error) error

	// Allocate sets the address of a block, and its contents if the host can access them. The memory of buffers and
	// reports is zeroed. Errors: Exhausted.
	Allocate(b *Block) error
	// Free frees the memory of an idle block.
	Free(b *Block)
	// Idle reports whether no pending work uses a block.
	Idle(b *Block) bool
	// Drain waits for all pending work.
	Drain() error

	// Load finds the kernels of a program.
	Load(e *Executable) (Program, error)

	// Upload and Download copy between the host and a buffer. The caller has checked the bounds.
	Upload(b *Buffer, off int, src []byte) (backend.Fence, error)
	Download(dst []byte, b *Buffer, off int) (backend.Fence, error)
}

// Addresser is a Driver whose Pointers are not addresses of the device.
type Addresser interface {
	// Address returns the address of a Pointer's memory. It is called in a turn, of devices whose Target has Tables.
	Address(p Pointer) uint64
}

// Program is a driver's part of an Executable. Its methods are called in the device's
// turn.
type Program interface {
	// Launch enqueues the launches of a run.
	Launch(f *Flight) error
	// Mark ends the work of a run and records it in the run's blocks with Flight.Use. Flight.Finish is called when
	// that work is done. A run that failed to launch is marked too.
	Mark(f *Flight) error
	// Close frees the resources that Load allocated.
	Close()
}

// Job is work that is done in a device's turn.
type Job interface{ Perform() }

// Completion is told when work has ended, and how.
type Completion interface{ Finish(err error) }

// Exhausted is the error of a driver that has no memory left. It describes the memory
// of the device.
type Exhausted string

// Error returns the description.
func (e Exhausted) Error() string { return string(e) }

// call is a job with a caller that waits for it.
type call struct {
	f    func() error
	done chan error
}

func (c *call) Perform() { c.done <- c.f() }
