// Package upload measures how weights are uploaded from a file to a device when a model is loaded, compared with the
// rate of pinned copies.
package upload

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/dev/bench"
	"github.com/lorafuse/lorafuse/dev/bench/checkpoint"
	"github.com/lorafuse/lorafuse/dev/bench/program"
	"github.com/lorafuse/lorafuse/internal/engine"
	"github.com/lorafuse/lorafuse/internal/model"
)

// Options configures Run.
type Options struct {
	bench.Turns
	Backend string // name of the backend, empty for the best
	Threads int    // of the CPU's device, 0 for one per core
	// Sizes are names of models, see checkpoint.Shapes.
	Sizes []string
	// Dir is the folder for temporary models; empty means the system's temporary folder.
	Dir string
}

// Groups and names of rows.
const (
	group  = "Weights from the page cache to the device"
	ours   = "lorafuse"
	memory = "memory"
)

// Run runs the benchmark. It fails with [bench.ErrOptions], with errors of the device and with the error of ctx; the
// report then holds the measurements so far.
func Run(ctx context.Context, o Options) (_ *bench.Report, err error) {
	if len(o.Sizes) == 0 {
		return nil, fmt.Errorf("upload: %w: no size of a model", bench.ErrOptions)
	}
	var shapes []checkpoint.Shape
	for _, name := range o.Sizes {
		s, err := checkpoint.ByName(name)
		if err != nil {
			return nil, fmt.Errorf("upload: %w: %w", bench.ErrOptions, err)
		}
		shapes = append(shapes, s)
	}
	m, err := program.Open(o.Backend, o.Threads)
	if err != nil {
		return nil, fmt.Errorf("upload: %w", err)
	}
	defer func() { err = errors.Join(err, m.Close()) }()
	m.Quick = true // the peaks of the machine are no part of this
	dir, err := os.MkdirTemp(o.Dir, "lorafuse-bench-")
	if err != nil {
		return nil, fmt.Errorf("upload: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	var tasks []bench.Task
	for _, shape := range shapes {
		tasks = append(tasks, tasksOf(m, shape, filepath.Join(dir, shape.Name))...)
	}
	if tasks, err = o.Select(tasks); err != nil {
		return nil, fmt.Errorf("upload: %w", err)
	}
	report := m.Report("upload")
	report.Environment.FileSystem = bench.Machine(dir).FileSystem
	if err := o.Measure(ctx, tasks, report); err != nil {
		return report, fmt.Errorf("upload: %w", err)
	}
	return report, nil
}

// tasksOf returns the tasks for the model in dir.
func tasksOf(m *program.Machine, shape checkpoint.Shape, dir string) []bench.Task {
	dev := m.Device(backend.F32)
	row := func(program, name string) *bench.Row {
		return &bench.Row{Group: group, Program: program, Name: name, Input: shape.String()}
	}
	mine, pinned := row(ours, "as models are loaded"), row(memory, "copy from pinned memory")
	made := func() error {
		if _, err := os.Stat(dir); err == nil {
			return nil
		}
		return shape.Write(dir)
	}
	load := bench.Task{Row: mine, Begin: func(context.Context) (bench.Sampler, error) {
		if err := made(); err != nil {
			return nil, err
		}
		l, err := newLoading(dev, dir)
		if err != nil {
			return nil, err
		}
		mine.Bytes = l.bytes
		return l, nil
	}}
	meter, ok := dev.(backend.Meter)
	if !ok || !m.OnGPU() {
		return []bench.Task{load} // in place, as devices that share the memory have it
	}
	load.Marks = []bench.Mark{{Name: bench.TargetUpload, Row: mine.ID(), Beside: []string{pinned.ID()}, Factor: bench.MostUpload}}
	tasks := []bench.Task{load, {Row: pinned, Begin: func(context.Context) (bench.Sampler, error) {
		pinned.Bytes = mine.Bytes
		return &copying{meter, pinned}, nil
	}}}
	for _, way := range []backend.LoadMode{backend.LoadRing, backend.LoadRegister, backend.LoadPlain} {
		r := row(ours, "by "+way.String())
		tasks = append(tasks, bench.Task{Row: r, Begin: func(context.Context) (bench.Sampler, error) {
			if err := made(); err != nil {
				return nil, err
			}
			dev, err := backend.Open(m.Info.Backend, backend.Options{Load: way})
			if err != nil {
				return nil, err
			}
			l, err := newLoading(dev, dir)
			if err != nil {
				return nil, errors.Join(err, dev.Close())
			}
			r.Bytes = l.bytes
			return &alone{l}, nil
		}})
	}
	return tasks
}

// alone is loading to a device of its own.
type alone struct{ *loading }

func (a *alone) Close() error { return errors.Join(a.loading.Close(), a.dev.Close()) }

// loading samples the time in which all weights of a model come to the device.
type loading struct {
	dev   backend.Device
	model *model.Model
	names []string
	bytes int64
}

func newLoading(dev backend.Device, dir string) (*loading, error) {
	m, err := model.Open(dir)
	if err != nil {
		return nil, err
	}
	l := &loading{dev: dev, model: m, names: m.Used()}
	for _, name := range l.names {
		w, err := m.Weight(name)
		if err != nil {
			return nil, errors.Join(err, m.Close())
		}
		l.bytes += int64(w.Size())
	}
	return l, nil
}

// Sample loads the weights once and frees their device memory.
func (l *loading) Sample(ctx context.Context) (float64, error) {
	s := engine.NewStore(l.dev)
	defer s.Free()
	start := time.Now()
	if err := s.Import(ctx, l.model, l.names); err != nil {
		return 0, err
	}
	// The last upload is complete when it can be read.
	var last [1]byte
	f, err := l.dev.Download(last[:], s.Buffer(l.names[len(l.names)-1]), 0)
	if err == nil {
		err = f.Wait(ctx)
	}
	return time.Since(start).Seconds(), err
}

func (l *loading) Close() error { return l.model.Close() }

// copying samples the time in which the device copies as many bytes of pinned
// memory.
type copying struct {
	dev backend.Meter
	row *bench.Row
}

func (c *copying) Sample(context.Context) (float64, error) {
	p, err := c.dev.Peak()
	if err == nil && p.CopiedPerSecond == 0 {
		err = fmt.Errorf("upload: %w: the device does not say how fast it copies", backend.ErrUnsupported)
	}
	if err != nil {
		return 0, err
	}
	return float64(c.row.Bytes) / p.CopiedPerSecond, nil
}

func (c *copying) Close() error { return nil }
