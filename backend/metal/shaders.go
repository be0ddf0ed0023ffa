//go:build cgo && (darwin || (metal && metalfake))

package metal

import (
	"errors"
	"fmt"
	"io/fs"
	"sync"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/backend/gpu"
	"github.com/lorafuse/lorafuse/kernels"
)

// form describes how shaders are compiled, with simdgroup operations and with the type bfloat, and whether they read
// addresses of buffers from tables.
type form struct{ simd, bfloat, tables bool }

func (f form) String() string {
	s := "threadgroups alone"
	if f.simd {
		s = "simdgroups"
	}
	if f.bfloat {
		s += " and bfloat"
	}
	if f.tables {
		s += ", tables of addresses"
	}
	return s
}

// language returns the version of the Metal language that the form needs.
func (f form) language() int {
	if f.bfloat {
		return 310
	}
	return 300
}

// shaders are the kernels of a device: a file is compiled when the first of its kernels
// is asked for, once.
type shaders struct {
	system *system
	form   form

	mu        sync.Mutex
	closed    bool
	libraries map[string]library // by files
	kernels   map[string]*kernel // by files and names
}

// kernel is a kernel that programs launch.
type kernel struct {
	pipeline
	known bool // its arguments; of the device's turn
}

func newShaders(s *system, f form) *shaders {
	return &shaders{system: s, form: f, libraries: map[string]library{}, kernels: map[string]*kernel{}}
}

// kernel finds a kernel of a plan. Errors: backend.ErrUnsupported.
func (s *shaders) kernel(k *gpu.Kernel) (*kernel, error) {
	found, err := s.find(k.File, k.Name)
	if err != nil {
		return nil, err
	}
	if b := k.Launch.Block; int(b[0]*b[1]*b[2]) > found.threads {
		return nil, fmt.Errorf("%w: kernel %s has threadgroups of %d threads, the device has at most %d for it", backend.ErrUnsupported, k.Name, b[0]*b[1]*b[2], found.threads)
	}
	return found, nil
}

// find finds a kernel by its file and name. Errors: backend.ErrUnsupported, with errNoKernel if the file has no such
// kernel in this form.
func (s *shaders) find(file, name string) (*kernel, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, errClosedDevice
	}
	full := file + "/" + name
	if found := s.kernels[full]; found != nil {
		return found, nil
	}
	l, err := s.library(file)
	if err != nil {
		return nil, err
	}
	p, err := s.system.pipeline(l, name)
	switch {
	case errors.Is(err, errNoKernel):
		return nil, fmt.Errorf("%w: file %s of package kernels, kernel %s: %w", backend.ErrUnsupported, file, name, err)
	case err != nil:
		return nil, fmt.Errorf("kernel %s of file %s: %w", name, file, err)
	}
	found := &kernel{pipeline: p}
	s.kernels[full] = found
	return found, nil
}

// library returns the compiled library of a file. Errors: backend.ErrUnsupported.
func (s *shaders) library(file string) (library, error) {
	if l, ok := s.libraries[file]; ok {
		return l, nil
	}
	text, err := kernels.MetalSource(kernels.Metal(), file)
	if errors.Is(err, fs.ErrNotExist) {
		return library{}, fmt.Errorf("%w: package kernels has no file %s", backend.ErrUnsupported, file)
	}
	if err != nil {
		return library{}, err
	}
	l, err := s.system.compile(text, s.form)
	if err != nil {
		return library{}, fmt.Errorf("compiling kernels of file %s: %w", file, err)
	}
	s.libraries[file] = l
	return l, nil
}

// learn sets the kinds of the kernel's arguments, once.
func (k *kernel) learn(kinds []gpu.Kind) {
	if !k.known {
		k.layout(kinds)
		k.known = true
	}
}

func (s *shaders) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, k := range s.kernels {
		k.free()
	}
	for _, l := range s.libraries {
		l.free()
	}
	s.closed, s.kernels, s.libraries = true, nil, nil
}
