// Package kernels measures single operations on a device: the matrix multiplications of training and decoding, and
// attention.
//
// Each is a graph of one operation that is compiled and run like any program. On a CPU each run is waited for. On a GPU
// the runs of a sample are enqueued, as for PyTorch: the time is that of an operation inside a longer program. The graph
// then has several copies of a small operation, with operands of their own that together exceed the caches.
package kernels

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/lorafuse/lorafuse/dev/bench"
	"github.com/lorafuse/lorafuse/dev/bench/peer"
	"github.com/lorafuse/lorafuse/dev/bench/program"
)

// Options configures Run.
type Options struct {
	bench.Turns
	Backend string // name of the backend, empty for the best
	Threads int    // of the device, 0 for one per core
	// Shrink divides all sizes, for a quick look; 0 and 1 do not.
	Shrink int
	// Python is a Python with torch and numpy, whose products and attention are measured for comparison; empty for
	// none.
	Python string
	// Models measures shapes of models that users train on GPUs, in bf16 only, instead of small shapes.
	Models bool
	// Thresholds measures the variants of kernels on both sides of each of gpu.Thresholds instead.
	Thresholds bool
	// Once has a sample be one run of its program, for profilers.
	Once bool
	// Torch, if not nil, is a PyTorch that is measured on a GPU with the shapes of Models, instead of lorafuse.
	Torch *peer.Peer
}

// Run runs the benchmark. It fails with [bench.ErrOptions], with errors of the device and with the error of ctx; the
// report then holds the measurements so far. A peer's failure is recorded in its row instead.
func Run(ctx context.Context, o Options) (_ *bench.Report, err error) {
	if o.Shrink < 0 {
		return nil, fmt.Errorf("kernels: %w: found a divisor of sizes of %d, expected 1 or more", bench.ErrOptions, o.Shrink)
	}
	m, err := program.Open(o.Backend, o.Threads)
	if err != nil {
		return nil, fmt.Errorf("kernels: %w", err)
	}
	defer func() { err = errors.Join(err, m.Close()) }()
	m.Quick, m.Once = o.Shrink > 1, o.Once
	s := &suite{Options: o, machine: m}
	if o.Python != "" {
		s.torch = peer.Torch(o.Python, o.Threads)
		defer func() { err = errors.Join(err, s.torch.Close()) }()
	}
	var all []bench.Task
	switch {
	case o.Torch != nil:
		all = s.yardsticks()
	case o.Thresholds:
		if all, err = s.variantTasks(); err != nil {
			return nil, fmt.Errorf("kernels: %w", err)
		}
	case o.Models:
		all = slices.Concat(s.products(models, kinds[bf16:bf16+1]), s.modelAttentions())
	default:
		all = slices.Concat(s.products(shapes, kinds), s.attentions())
	}
	tasks, err := o.Select(all)
	if err != nil {
		return nil, fmt.Errorf("kernels: %w", err)
	}
	report := m.Report("kernels")
	if err := m.Measure(ctx, o.Turns, tasks, report); err != nil {
		return report, fmt.Errorf("kernels: %w", err)
	}
	return report, nil
}

// Names of the measured programs.
const (
	ours     = "lorafuse"
	torch    = "torch"
	openBLAS = "numpy"
)

type suite struct {
	Options
	machine *program.Machine
	torch   *peer.Peer // nil if not measured
}

// shrunk divides a size, to no less than least.
func (s *suite) shrunk(n, least int) int { return max(min(n, least), n/max(1, s.Shrink)) }
