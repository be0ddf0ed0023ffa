package safetensors

import "context"

// Sink receives the bytes of a load, for example in host memory or in a
// device's ring of pinned slots. All methods are called concurrently.
//
// After the first error, of the sink or of reading, no new work is started:
// slots that the sink has returned may never be passed to Done. After Load has
// returned, the memory of the sink is not accessed.
type Sink interface {
	// Slot returns memory for at least c.Length bytes. It may wait until ctx is
	// done. For Strategy Direct the memory should begin at a multiple of 4096;
	// otherwise the bytes are copied once more.
	Slot(ctx context.Context, c *Chunk) ([]byte, error)
	// Done returns the slot to the sink with c.Length bytes of the file; c.Parts
	// tells which of them are wanted.
	Done(c *Chunk, data []byte) error
}

// PartSink is a Sink that has its own destination for every tensor. Readers
// write there without an intermediate slot: Place is called once for each part,
// instead of Slot, and Done is called with nil when all parts of the chunk are
// complete.
type PartSink interface {
	Sink
	// Place returns the memory for a part: p.Length bytes. If the memory of the
	// next part follows and the slice has the capacity for it, both are read at
	// once.
	Place(c *Chunk, p Part) ([]byte, error)
}

// InPlaceSink is a Sink that can use the mapped memory of a file without a
// copy: the CPU, or a device that shares the host's memory.
type InPlaceSink interface {
	Sink
	// InPlace is called before anything is read, unless LoadOptions.Strategy is
	// Pread or Direct. It is called once for each contiguous range of a file in
	// memory; c lists the views in the range. If the sink returns taken, it gets
	// no chunk of the range by Slot. Instead, Load makes the pages resident
	// before it returns; the sink may use them earlier.
	//
	// The data of a mapped file begins at a page boundary and may be used up to
	// the end of its last page. It must not be written to. It is valid as long as
	// one of the views in c.Parts is reachable, even if the file is closed.
	InPlace(c *Chunk, data []byte) (taken bool, err error)
}

// session is a sink of this package that is told when a load begins and ends.
type session interface {
	startLoad(*LoadPlan) error
	end()
}
