package engine

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"sync/atomic"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/internal/fork"
	"github.com/lorafuse/lorafuse/internal/nn"
	"github.com/lorafuse/lorafuse/tensor"
)

// Store holds the buffers of a model on one device by name. Weights are imported once for all
// executables, and used in place if the device shares the host's memory.
type Store struct {
	dev     backend.Device
	buffers map[string]backend.Buffer
}

// NewStore returns an empty store for a device.
func NewStore(dev backend.Device) *Store {
	return &Store{dev, map[string]backend.Buffer{}}
}

// Buffer returns the named buffer, or nil.
func (s *Store) Buffer(name string) backend.Buffer { return s.buffers[name] }

// Import uploads the named tensors of a checkpoint that are not present yet, all at once if
// the device is a backend.Loader. Tensors that need conversion are converted on the device if
// it can do so, otherwise on all cores, each in its own buffer.
func (s *Store) Import(ctx context.Context, w nn.Weights, names []string) error {
	var made, loaded []string
	var weights []nn.Weight
	var files []backend.Weight
	var sizes []int
	loader, _ := s.dev.(backend.Loader)
	info := s.dev.Info()
	for _, name := range names {
		if s.buffers[name] != nil || slices.Contains(made, name) || slices.Contains(loaded, name) {
			continue
		}
		x, err := w.Weight(name)
		if err != nil {
			return err
		}
		if loader != nil && loads(info, x) {
			loaded, files = append(loaded, name), append(files, backend.Weight{View: x.View, DType: x.DType})
			continue
		}
		if x.Fill != nil {
			made, weights, sizes = append(made, name), append(weights, x), append(sizes, x.Size())
			continue
		}
		if s.buffers[name], err = s.dev.Import(x.Source); err != nil {
			delete(s.buffers, name)
			return fmt.Errorf("tensor %q: %w", name, err)
		}
	}
	if len(files) > 0 {
		buffers, err := loader.Load(ctx, files)
		if err != nil {
			return err
		}
		for i, name := range loaded {
			s.buffers[name] = buffers[i]
		}
	}
	buffers, err := s.allocAll(sizes)
	if err != nil {
		return fmt.Errorf("%d weights: %w", len(sizes), err)
	}
	tasks := make([]func() error, len(made))
	for i, name := range made {
		tasks[i] = func() error { return s.fill(name, buffers[i], weights[i]) }
	}
	if err := together(tasks); err != nil {
		for _, b := range buffers {
			b.Free()
		}
		return err
	}
	for i, name := range made {
		s.buffers[name] = buffers[i]
	}
	return nil
}

// loads reports whether a device can read a weight directly from a file.
func loads(d backend.Info, w nn.Weight) bool {
	if w.View == nil {
		return false
	}
	from, err := tensor.ParseDType(w.View.DType.String())
	return err == nil && (from == w.DType || d.Converts(from, w.DType))
}

// allocAll allocates buffers, in one block of memory if the device supports that.
func (s *Store) allocAll(sizes []int) ([]backend.Buffer, error) {
	if d, ok := s.dev.(backend.Memory); ok {
		return d.AllocAll(sizes)
	}
	buffers := make([]backend.Buffer, len(sizes))
	for i, n := range sizes {
		var err error
		if buffers[i], err = s.dev.Alloc(n); err != nil {
			for _, b := range buffers[:i] {
				b.Free()
			}
			return nil, err
		}
	}
	return buffers, nil
}

// fill writes the contents of a buffer.
func (s *Store) fill(name string, b backend.Buffer, w nn.Weight) error {
	err := w.Fill(func(offset int, data []byte) error {
		f, err := s.dev.Upload(b, offset, data)
		if err != nil {
			return err
		}
		return f.Wait(context.Background())
	})
	if err != nil {
		return fmt.Errorf("tensor %q: %w", name, err)
	}
	return nil
}

// together runs tasks on all cores. After an error no task is begun; the error
// is that of the first of the tasks that have one.
func together(tasks []func() error) error {
	errs := make([]error, len(tasks))
	var next atomic.Int64
	var failed atomic.Bool
	var workers fork.Group
	for range min(len(tasks), runtime.GOMAXPROCS(0)) {
		workers.Go(func() {
			for !failed.Load() {
				i := int(next.Add(1)) - 1
				if i >= len(tasks) {
					return
				}
				if errs[i] = tasks[i](); errs[i] != nil {
					failed.Store(true)
				}
			}
		})
	}
	workers.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// Alloc allocates a zeroed buffer under a name, unless one exists already.
func (s *Store) Alloc(name string, bytes int) (backend.Buffer, error) {
	if b := s.buffers[name]; b != nil {
		if b.Size() < bytes {
			return nil, fmt.Errorf("buffer %q has %d bytes, expected %d", name, b.Size(), bytes)
		}
		return b, nil
	}
	b, err := s.dev.Alloc(bytes)
	if err != nil {
		return nil, fmt.Errorf("buffer %q: %w", name, err)
	}
	s.buffers[name] = b
	return b, nil
}

// Set overwrites the named buffer, or creates it.
func (s *Store) Set(ctx context.Context, name string, data []byte) error {
	b, err := s.Alloc(name, len(data))
	if err != nil {
		return err
	}
	f, err := s.dev.Upload(b, 0, data)
	if err != nil {
		return fmt.Errorf("buffer %q: %w", name, err)
	}
	return f.Wait(ctx)
}

// Share creates the named buffer from data that does not change, in place on the CPU.
func (s *Store) Share(ctx context.Context, name string, data []byte) error {
	if s.dev.Info().GPU {
		return s.Set(ctx, name, data)
	}
	var w nn.Weight
	w.Source.Bytes, w.Source.Brief = data, true
	b, err := s.dev.Import(w.Source)
	if err != nil {
		return fmt.Errorf("buffer %q: %w", name, err)
	}
	s.buffers[name] = b
	return nil
}

// Get copies the first len(dst) bytes of the buffer called name.
func (s *Store) Get(ctx context.Context, name string, dst []byte) error {
	b := s.buffers[name]
	if b == nil {
		return fmt.Errorf("no buffer %q", name)
	}
	f, err := s.dev.Download(dst, b, 0)
	if err != nil {
		return fmt.Errorf("buffer %q: %w", name, err)
	}
	return f.Wait(ctx)
}

// Copy copies bytes of the buffer called name from one place in it to another, by way of
// the host.
func (s *Store) Copy(ctx context.Context, name string, from, to, bytes int) error {
	b := s.buffers[name]
	if b == nil {
		return fmt.Errorf("no buffer %q", name)
	}
	data := make([]byte, bytes)
	f, err := s.dev.Download(data, b, from)
	if err == nil {
		err = f.Wait(ctx)
	}
	if err == nil {
		f, err = s.dev.Upload(b, to, data)
	}
	if err == nil {
		err = f.Wait(ctx)
	}
	if err != nil {
		return fmt.Errorf("buffer %q: %w", name, err)
	}
	return nil
}

// Bytes returns the memory of all buffers, including imported ones.
func (s *Store) Bytes() int {
	n := 0
	for _, b := range s.buffers {
		n += b.Size()
	}
	return n
}

// Free releases all buffers.
func (s *Store) Free() {
	for _, b := range s.buffers {
		b.Free()
	}
	s.buffers = map[string]backend.Buffer{}
}

// SetFloat32s sets the buffer called name to x.
func (s *Store) SetFloat32s(ctx context.Context, name string, x []float32) error {
	return s.Set(ctx, name, tensor.BytesOf(x))
}

// GetFloat32s copies the first len(dst) floats of the buffer called name.
func (s *Store) GetFloat32s(ctx context.Context, name string, dst []float32) error {
	return s.Get(ctx, name, tensor.BytesOf(dst))
}
