package safetensors

import (
	"context"
	"fmt"
	"math"
	"slices"
)

// HostBuffer is a Sink that keeps a private copy of tensors: in one stretch of
// memory of its own, outside of the garbage collector's, in huge pages where the
// system has them. Readers write right into it.
//
// The copies are Views, with all that views can do. They lie at multiples of 64
// bytes, whatever the file does, and may be written to. They do not depend on
// what becomes of their files.
//
// The views are safe for concurrent use, the buffer is not.
type HostBuffer struct {
	file   *File // whose mapping is the memory
	memory arena
	from   []*View
	views  []*View
	byName map[string]int // -1 for a name that several views have
}

// tensorAlign is what tensors in a HostBuffer are aligned to: a cache line, and
// the longest vector registers.
const tensorAlign = 64

// NewHostBuffer reserves memory for copies of the views, which Load then makes:
// it takes the same views, and the buffer for its sink. Close gives the memory
// back.
func NewHostBuffer(views []*View) (*HostBuffer, error) {
	b := &HostBuffer{file: newHostFile(arena{})}
	if err := b.Reset(views); err != nil {
		return nil, err
	}
	return b, nil
}

// LoadHost is NewHostBuffer and Load.
func LoadHost(ctx context.Context, views []*View, o LoadOptions) (*HostBuffer, LoadStats, error) {
	b, err := NewHostBuffer(views)
	if err != nil {
		return nil, LoadStats{}, err
	}
	stats, err := Load(ctx, views, b, o)
	if err != nil {
		b.Close() // nobody has its views
		return nil, stats, err
	}
	return b, stats, nil
}

// newHostFile is the File that views of memory belong to.
func newHostFile(memory arena) *File {
	f := &File{path: "copy in memory", header: &header{}, mapping: newMapping(memory.region)}
	f.mapping.data = memory.data // the region begins before
	f.header.names.build(nil)
	return f
}

// Reset makes the buffer one for other views, in the same memory if it is large
// enough: a second load then need not wait for fresh pages, which take longer
// than reading. Views that the buffer has handed out fail with ErrClosed from
// now on. Where bytes of them were handed out by View.Bytes or As, that memory
// is left to those who have them, and new memory reserved: use View.Use or
// View.Hold.
//
// It fails with ErrInUse while such a use is going on, and where there is not
// enough memory; the buffer is closed then.
func (b *HostBuffer) Reset(views []*View) error {
	places, size := hostLayout(views)
	if size < 0 {
		return fmt.Errorf("safetensors: memory for %d tensors: more than 2^63 bytes: %w", len(views), ErrOverflow)
	}
	m := b.file.mapping
	if m.isClosed() {
		return b.file.errClosed()
	}
	if _, users := m.shut(); users > 0 {
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

// keepRegion leaves the memory of a mapping that is shut to another one.
func (m *mapping) keepRegion() {
	m.cleanup.Stop()
	m.region = region{}
}

// hostLayout returns where each view goes, and the size of it all, negative where
// there is no number for it. The order is that of the files, so that neighbours
// there are neighbours here.
func hostLayout(views []*View) (places []int64, size int64) {
	p := &LoadPlan{views: views}
	places = make([]int64, len(views))
	for _, e := range p.extents() {
		length := e.end - e.begin
		size = roundUp(size, tensorAlign)
		ahead := (size - e.begin) & (pageAlign - 1) // of the place within a page there
		switch {
		case e.begin%tensorAlign == 0 && length >= worthPlacing:
			// The same place within a page is what direct reads need, and what
			// others are fastest with.
			size += (pageAlign - ahead) % pageAlign
		case 0 < ahead && ahead < tensorAlign && length >= pageAlign:
			// Processors copy three times slower (measured: Zen 4, kernel and all)
			// where what they write seems to run just ahead of what they read.
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

// worthPlacing is the size of tensors that a page may be given up for.
const worthPlacing = 256 << 10

// place makes the views of the memory.
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

// Len is the number of tensors.
func (b *HostBuffer) Len() int { return len(b.views) }

// Views returns the copies, in the order of the views that the buffer was made
// for. Their bytes are there when Load has returned.
func (b *HostBuffer) Views() []*View { return slices.Clone(b.views) }

// Names returns the names of the tensors, in the order of the views that the
// buffer was made for.
func (b *HostBuffer) Names() []string {
	names := make([]string, len(b.views))
	for i, v := range b.views {
		names[i] = v.Name
	}
	return names
}

// Lookup returns the copy of the view of that name. It fails with a
// *NotFoundError, which wraps ErrNotFound, with ErrDuplicateTensor where
// several views have the name, and with ErrClosed.
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

// Size is the memory that is reserved, in bytes.
func (b *HostBuffer) Size() int64 { return int64(len(b.memory.data)) }

// Close gives the memory back, as File.Close does.
func (b *HostBuffer) Close() error { return b.file.Close() }

// begin keeps the memory until end.
func (b *HostBuffer) begin(p *LoadPlan) error {
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
