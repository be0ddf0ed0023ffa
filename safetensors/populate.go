package safetensors

import (
	"context"
	"errors"
	"sync/atomic"
	"time"
)

// Populate reads and maps the pages of views, with LoadOptions.Threads
// concurrent readers, and waits for them, so that later accesses do not wait. It
// ignores LoadOptions.Strategy, and views that are not in mapped memory: use
// Load for those.
//
// The system decides how long the pages stay. It fails with ErrFault, ErrClosed,
// and if ctx is done.
func Populate(ctx context.Context, views []*View, o LoadOptions) (LoadStats, error) {
	o.Strategy = Mmap
	return Load(ctx, inMemory(views), residentSink{}, o)
}

// Populate reads and maps the pages of all tensors of the file, like the
// function Populate.
func (f *File) Populate(ctx context.Context, o LoadOptions) (LoadStats, error) {
	views, err := f.Views()
	if err != nil {
		return LoadStats{}, err
	}
	return Populate(ctx, views, o)
}

// Populate reads and maps the pages of all tensors of the set, like the
// function Populate.
func (s *Set) Populate(ctx context.Context, o LoadOptions) (LoadStats, error) {
	views, err := s.Views()
	if err != nil {
		return LoadStats{}, err
	}
	return Populate(ctx, views, o)
}

// Views returns all tensors, in the order of Names. It fails with ErrClosed.
func (f *File) Views() ([]*View, error) {
	if f.mapping.isClosed() {
		return nil, f.errClosed()
	}
	views := make([]*View, len(f.header.records))
	for i := range views {
		views[i] = f.view(i)
	}
	return views, nil
}

// Views returns all tensors, in the order of Names. It fails with ErrClosed.
func (s *Set) Views() ([]*View, error) {
	all := make([]*View, 0, s.Len())
	for _, f := range s.files {
		views, err := f.Views()
		if err != nil {
			return nil, err
		}
		all = append(all, views...)
	}
	return all, nil
}

// residentSink accepts mapped memory only.
type residentSink struct{}

func (residentSink) InPlace(*Chunk, []byte) (bool, error)         { return true, nil }
func (residentSink) Slot(context.Context, *Chunk) ([]byte, error) { return nil, errors.ErrUnsupported }
func (residentSink) Done(*Chunk, []byte) error                    { return nil }

func inMemory(views []*View) []*View {
	in := make([]*View, 0, len(views))
	for _, v := range views {
		if v.InPlace() {
			in = append(in, v)
		}
	}
	return in
}

// makeResident reads and maps the pages of a chunk. On failure it returns the
// file offset of the error.
func (f *feed) makeResident(c *Chunk) (at int64, err error) {
	if !f.origin.mapped() {
		return 0, nil
	}
	memory := f.origin.memory[c.Offset : c.Offset+c.Length]
	way, start := f.methods.choose(), time.Now()
	defer func() { f.methods.record(way, c.Length, time.Since(start)) }()
	if way == byCall && mapPages(memory) {
		return 0, nil
	}
	// Touch the pages one by one, also to find the one that cannot be read.
	if way == byCall { // the failed call has not read all pages
		_ = f.origin.file.mapping.willNeed(c.Offset, c.Offset+c.Length)
	}
	at, ok := f.origin.file.mapping.guarded(func() {
		var sum byte
		for i := int64(0); i < int64(len(memory)); i += pageSize {
			sum += memory[i]
		}
		touched.Store(uint32(sum))
	})
	if !ok {
		return at, ErrFault
	}
	return 0, nil
}

// touched keeps the compiler from optimizing reads away.
var touched atomic.Uint32
