package safetensors

import "context"

// Sink takes what a load reads: host memory, a device's ring of pinned slots.
// All methods are called concurrently.
//
// After the first error, of the sink or of reading, nothing more is started: a
// sink may have given slots that it does not get back by Done. Once Load has
// returned none of its memory is used any more.
type Sink interface {
	// Slot returns memory for c.Length bytes; there may be more of it. It may wait,
	// for as long as ctx is not done. For Strategy Direct the memory should
	// begin at a multiple of 4096, else the bytes are copied once more.
	Slot(ctx context.Context, c *Chunk) ([]byte, error)
	// Done gets the slot back with the bytes of the file, c.Length of them: c.Parts
	// says which of them are wanted. The slot belongs to the sink again.
	Done(c *Chunk, data []byte) error
}

// PartSink is a Sink that has a place of its own for every tensor. Readers write
// there, without a slot between: Place is called instead of Slot, once for each
// part, and Done with nil when all parts of the chunk are in place.
type PartSink interface {
	Sink
	// Place returns the memory for a part: p.Length bytes. Where the memory of the
	// next part follows and the slice has the capacity for it, both are read in
	// one go.
	Place(c *Chunk, p Part) ([]byte, error)
}

// InPlaceSink is a Sink that can use the mapped memory of a file as it is: the
// CPU, a device that shares its memory.
type InPlaceSink interface {
	Sink
	// InPlace is called before anything is read, unless LoadOptions.Strategy is
	// Pread or Direct: once for each extent of a file in memory that is needed
	// without a break, however long; c says what it carries. The sink that takes
	// it gets no chunk of it by Slot. Instead, Load makes its pages resident
	// before it returns, while the sink may use them already.
	//
	// The data of a mapped file begins at a page and may be used up to the end of
	// its last page. It must not be written to. It is valid as long as one of
	// the views in c.Parts is reachable, even if the file is closed.
	InPlace(c *Chunk, data []byte) (taken bool, err error)
}

// session is a sink of this package that must know when a load begins and ends.
type session interface {
	begin(*LoadPlan) error
	end()
}
