// Package layer measures linear layers with LoRA adapters: the overhead of an adapter over the frozen layer, fused and
// unfused, and adapters alone.
package layer

import (
	"context"
	"errors"
	"fmt"

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
	// Python is a Python with torch, which is measured in turn with the single
	// layers; empty for none.
	Python string
}

// Run runs the benchmark. It fails with [bench.ErrOptions], with errors of the device and with the error of ctx; the
// report then holds the measurements so far. A peer's failure is recorded in its row instead.
func Run(ctx context.Context, o Options) (_ *bench.Report, err error) {
	if o.Shrink < 0 {
		return nil, fmt.Errorf("layer: %w: found a divisor of sizes of %d, expected 1 or more", bench.ErrOptions, o.Shrink)
	}
	m, err := program.Open(o.Backend, o.Threads)
	if err != nil {
		return nil, fmt.Errorf("layer: %w", err)
	}
	defer func() { err = errors.Join(err, m.Close()) }()
	m.Quick = o.Shrink > 1
	s := &suite{Options: o, machine: m}
	if o.Python != "" {
		s.torch = peer.Torch(o.Python, o.Threads)
		defer func() { err = errors.Join(err, s.torch.Close()) }()
	}
	tasks, err := o.Select(append(s.overheads(), s.single()...))
	if err != nil {
		return nil, fmt.Errorf("layer: %w", err)
	}
	report := m.Report("layer")
	if err := m.Measure(ctx, o.Turns, tasks, report); err != nil {
		return report, fmt.Errorf("layer: %w", err)
	}
	return report, nil
}

// Names of the measured programs.
const (
	ours  = "lorafuse"
	torch = "torch"
)

type suite struct {
	Options
	machine *program.Machine
	torch   *peer.Peer // nil if not measured
}

// shrunk divides a size, to no less than 1.
func (s *suite) shrunk(n int) int { return max(1, n/max(1, s.Shrink)) }
