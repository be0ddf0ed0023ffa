package safetensors

import (
	"context"
	"fmt"
	"math"
	"slices"
)

// HostBuffer is a Sink that keeps a private copy of tensors in one block of
// memory outside the Go heap, in huge pages if the system has them. Readers
// write directly into it.
//
// The copies are Views with all their methods. They are aligned to 64 bytes,
// whatever their alignment in the file, and may be written to. They do not
// depend on the files after the load.
//
// The views are safe for concurrent use, the buffer is not.
type HostBuffer struct {
	file   *File // file whose mapping is the memory
	memory arena
	from   []*View
	views  []*View
	byName map[string]int // -1 for a name shared by several views
}

// tensorAlign is the alignment of tensors in a HostBuffer: a cache line, and
// the widest vector register.
const tensorAlign = 64

// NewHostBuffer reserves memory for copies of the views. Pass the same views
// and the buffer to Load to make the copies. Close frees the memory.
func NewHostBuffer(views []*View) (*HostBuffer, error) {
	b := &HostBuffer{file: newHostFile(arena{})}
	if err := b.Reset(views); err != nil {
		return nil, err
	}
	return b, nil
}

// LoadHost creates a HostBuffer for the views and loads them into it.
func LoadHost(ctx context.Context, views []*View, o LoadOptions) (*HostBuffer, LoadStats, error) {
	b, err := NewHostBuffer(views)
	if err != nil {
		return nil, LoadStats{}, err
	}
	stats, err := Load(ctx, views, b, o)
	if err != nil {
		b.Close() // no view has been returned yet
		return nil, stats, err
	}
	return b, stats, nil
}

// newHostFile returns the File that the views of memory belong to.
func newHostFile(memory arena) *File {
	f := &File{path: "copy in memory", header: &header{}, mapping: newMapping(memory.region)}
	f.mapping.data = memory.data // the region begins earlier
	f.header.names.build(nil)
	return f
}

// Reset prepares the buffer for other views. It reuses the memory if it is
// large enough, so that a second load does not wait for fresh pages, which take
// longer than reading. Views of the buffer then fail with ErrClosed. If
// View.Bytes or As has returned bytes of them, that memory stays valid for its
// users and new memory is reserved; View.WithBytes and View.Hold avoid this.
//
// It fails with ErrInUse while such a use is in progress. If there is not
// enough memory it fails and the buffer is closed.
func (b *HostBuffer) Reset(views []*View) error {
	places, size := hostLayout(views)
	if size < 0 {
		return fmt.Errorf("safetensors: memory for %d tensors: more than 2^63 bytes: %w", len(views), ErrOverflow)
	}
	m := b.file.mapping
	if m.isClosed() {
		return b.file.errClosed()
	}
	if _, users := m.retire(); users > 0 {
		return fmt.Errorf("safetensors: reset of a HostBuffer: %d uses of it: %w", users, ErrInUse)
	}
	if size <= int64(len(b.memory.data)) && m.state.Load()&pinned == 0 {
		m.keepRegion()
	} else {
		err := m.free()
		b.memory = arena{}
		if err == nil && size > 0 {
			b.memory, err = newArena(size)
		}
		if err != nil {
			return fmt.Errorf("safetensors: %d bytes for %d tensors: %w", size, len(views), err)
		}
	}
	b.file = newHostFile(b.memory)
	b.place(views, places)
	return nil
}

// keepRegion detaches the memory of a closed mapping so that another mapping
// can use it.
func (m *mapping) keepRegion() {
	m.cleanup.Stop()
	m.region = region{}
}

// hostLayout returns the offset of each view and the total size, negative if it
// overflows. Views are placed in the order of the files, so that neighbours there
// are neighbours here.
func hostLayout(views []*View) (places []int64, size int64) {
	p := &LoadPlan{views: views}
	places = make([]int64, len(views))
	for _, e := range p.extents() {
		length := e.end - e.begin
		size = roundUp(size, tensorAlign)
		ahead := (size - e.begin) & (pageAlign - 1) // of the offset within its page
		switch {
		case e.begin%tensorAlign == 0 && length >= worthPlacing:
			// Direct reads need the same offset within a page in memory and in
			// the file, and other reads are fastest with it.
			size += (pageAlign - ahead) % pageAlign
		case 0 < ahead && ahead < tensorAlign && length >= pageAlign:
			// CPUs copy three times slower (measured: Zen 4, including the kernel)
			// if the destination seems to run just ahead of the source.
			size += tensorAlign
		}
		places[e.view] = size
		if length > math.MaxInt64-2*pageAlign-size {
			return nil, -1
		}
		size += length
	}
	return places, size
}

// worthPlacing is the size from which a tensor is worth up to a page of
// padding.
const worthPlacing = 256 << 10

// place creates the views of the memory.
func (b *HostBuffer) place(views []*View, places []int64) {
	b.from = slices.Clone(views)
	b.views = make([]*View, len(views))
	b.byName = make(map[string]int, len(views))
	for i, v := range views {
		at := places[i]
		end := at + int64(v.Len())
		c := &View{Name: v.Name, DType: v.DType, file: b.file, begin: at, data: b.memory.data[at:end:end]}
		c.Shape = append(c.dims[:0], v.Shape...)
		b.views[i] = c
		if _, ok := b.byName[v.Name]; ok {
			b.byName[v.Name] = -1
		} else {
			b.byName[v.Name] = i
		}
	}
}

// Len returns the number of tensors.
func (b *HostBuffer) Len() int { return len(b.views) }

// Views returns the copies, in the order of the views passed to NewHostBuffer.
// Their bytes are complete after Load has returned.
func (b *HostBuffer) Views() []*View { return slices.Clone(b.views) }

// Names returns the names of the tensors, in the order of the views passed to
// NewHostBuffer.
func (b *HostBuffer) Names() []string {
	names := make([]string, len(b.views))
	for i, v := range b.views {
		names[i] = v.Name
	}
	return names
}

// Lookup returns the copy of the view with the given name. It fails with
// ErrClosed, with ErrDuplicateTensor if several views have the name, or with a
// *NotFoundError, which wraps ErrNotFound.
func (b *HostBuffer) Lookup(name string) (*View, error) {
	if b.file.mapping.isClosed() {
		return nil, b.file.errClosed()
	}
	i, ok := b.byName[name]
	switch {
	case !ok:
		return nil, &NotFoundError{Path: b.file.path, Name: name, names: b.Names}
	case i < 0:
		return nil, &FormatError{Path: b.file.path, Tensor: name, ofTensor: true, Rule: ErrDuplicateTensor, Found: "several views of this name"}
	}
	return b.views[i], nil
}

// Size returns the size of the reserved memory in bytes.
func (b *HostBuffer) Size() int64 { return int64(len(b.memory.data)) }

// Close frees the memory, under the same conditions as File.Close.
func (b *HostBuffer) Close() error { return b.file.Close() }

// startLoad keeps the memory valid until end.
func (b *HostBuffer) startLoad(p *LoadPlan) error {
	if !slices.Equal(p.views, b.from) {
		return fmt.Errorf("safetensors: load into a HostBuffer that was made for other views: %w", ErrRange)
	}
	if !b.file.mapping.acquire() {
		return b.file.errClosed()
	}
	return nil
}

func (b *HostBuffer) end() { b.file.mapping.release() }

// Place implements PartSink, for Load.
func (b *HostBuffer) Place(_ *Chunk, p Part) ([]byte, error) {
	begin := b.views[p.View].begin + p.From
	return b.memory.data[begin : begin+p.Length], nil
}

// Slot implements Sink for Load, which uses Place.
func (b *HostBuffer) Slot(context.Context, *Chunk) ([]byte, error) {
	return nil, fmt.Errorf("safetensors: a HostBuffer has places, no slots: %w", ErrRange)
}

// Done implements Sink.
func (b *HostBuffer) Done(*Chunk, []byte) error { return nil }
