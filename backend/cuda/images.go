//go:build cuda && linux

package cuda

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"gorgonia.org/cu"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/backend/cuda/internal/driver"
	"github.com/lorafuse/lorafuse/backend/gpu"
	"github.com/lorafuse/lorafuse/kernels"
)

// images holds the compiled kernels of this build. A file of kernels is uploaded when its first kernel is
// requested.
type images struct {
	data      map[string][]byte
	modules   map[string]cu.Module
	functions map[string]cu.Function
}

func newImages() images {
	return images{data: kernels.Images(), modules: map[string]cu.Module{}, functions: map[string]cu.Function{}}
}

// function finds a kernel of a file. Errors: backend.ErrUnsupported.
func (m *images) function(file, name string) (cu.Function, error) {
	if f, ok := m.functions[name]; ok {
		return f, nil
	}
	module, err := m.module(file)
	if err != nil {
		return cu.Function{}, err
	}
	f, err := module.Function(name)
	if err = driver.Of(err); errors.Is(err, driver.NotFound) {
		return f, fmt.Errorf("%w: file %s of package kernels has no kernel %s", backend.ErrUnsupported, file, name)
	}
	if err != nil {
		return f, fmt.Errorf("kernel %s: %w", name, err)
	}
	m.functions[name] = f
	return f, nil
}

func (m *images) module(file string) (cu.Module, error) {
	if module, ok := m.modules[file]; ok {
		return module, nil
	}
	data, ok := m.data[file]
	if !ok {
		return cu.Module{}, fmt.Errorf("%w: this build has no kernels of file %s", backend.ErrUnsupported, file)
	}
	module, err := cu.LoadData(string(data))
	if err != nil {
		return module, fmt.Errorf("loading the kernels of file %s: %w", file, driver.Of(err))
	}
	m.modules[file] = module
	return module, nil
}

// kernel finds a kernel of a plan, and allows it its shared memory.
func (d *Device) kernel(k *gpu.Kernel) (uintptr, error) {
	f, err := d.images.function(k.File, k.Name)
	if err == nil && k.SharedBytes() > 48<<10 {
		err = driver.SetMaxShared(f, k.SharedBytes())
	}
	if err != nil {
		return 0, err
	}
	return driver.Handle(f), nil
}

// Kernels lists the kernels that a closed device has prepared, for checks of coverage.
func (d *Device) Kernels() []string { return slices.Sorted(maps.Keys(d.images.functions)) }

func (m *images) unload() {
	for _, module := range m.modules {
		_ = module.Unload()
	}
	m.modules = nil
}
