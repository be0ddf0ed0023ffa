package load

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/tensor"
)

// pinned is the operation that copies to a device without reading anything.
const pinned = "pinned"

// checkDevice finds out whether there is a device of that name that files are
// loaded to.
func checkDevice(name string) error {
	dev, err := backend.Open(name, backend.Options{})
	if err != nil {
		return fmt.Errorf("load: %w", err)
	}
	_, ok := dev.(backend.Loader)
	if err := dev.Close(); err != nil {
		return fmt.Errorf("load: %w", err)
	}
	if !ok {
		return fmt.Errorf("load: %w: found backend %s, which uses weights where they are mapped, expected one with memory of its own: cuda", ErrOptions, dev.Info().Backend)
	}
	return nil
}

// toDevice loads the tensors of a file in one of the ways of backend.Load, or
// copies as many bytes from pinned memory.
func toDevice(name, way string) operation {
	return func(t *task) (func() (func() error, error), error) {
		o := backend.Options{}
		var err error
		if way != pinned {
			if o.Load, err = backend.ParseLoad(way); err != nil {
				return nil, err
			}
		}
		dev, err := backend.Open(name, o)
		if err != nil {
			return nil, err
		}
		if way == pinned {
			return pinnedCopies(t, dev)
		}
		loader, ok := dev.(backend.Loader)
		if !ok {
			return nil, fmt.Errorf("%s: %w", name, errors.ErrUnsupported)
		}
		return func() (func() error, error) { return loadOnce(t, loader) }, nil
	}
}

func loadOnce(t *task, loader backend.Loader) (release func() error, err error) {
	f, views, err := openAll(t.file)
	if err != nil {
		return nil, err
	}
	weights := make([]backend.Weight, len(views))
	for i, v := range views {
		d, err := tensor.ParseDType(v.DType.String())
		if err != nil {
			return nil, err
		}
		weights[i] = backend.Weight{View: v, DType: d}
	}
	buffers, err := loader.Load(context.Background(), weights)
	if err != nil {
		return nil, err
	}
	s := loader.Loaded()
	t.detail = s.Mode.String() + ", " + s.Read
	return func() error {
		for _, b := range buffers {
			b.Free()
		}
		return f.Close()
	}, nil
}

func pinnedCopies(t *task, dev backend.Device) (func() (func() error, error), error) {
	copier, ok := dev.(backend.PinnedCopier)
	if !ok {
		return nil, fmt.Errorf("%s: %w", dev.Info().Backend, errors.ErrUnsupported)
	}
	info, err := os.Stat(t.file)
	if err != nil {
		return nil, err
	}
	run, _, err := copier.PinnedCopy(info.Size()) // the process ends with it
	if err != nil {
		return nil, err
	}
	return func() (func() error, error) { return nil, run() }, nil
}
