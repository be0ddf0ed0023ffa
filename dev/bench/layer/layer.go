// Package layer measures linear layers with LoRA adapters, compared with the frozen layer.
package layer

import (
	"context"
	"errors"
	"fmt"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/dev/bench"
	"github.com/lorafuse/lorafuse/dev/bench/program"
	"github.com/lorafuse/lorafuse/graph"
	"github.com/lorafuse/lorafuse/internal/ir"
	"github.com/lorafuse/lorafuse/tensor"
)

// Options configures Run.
type Options struct {
	bench.Turns
	Backend string // name of the backend, empty for the best
	Threads int    // of the device, 0 for one per core
	// Shrink divides all sizes, for a quick look; 0 and 1 do not.
	Shrink int
}

// Run runs the benchmark. It fails with [bench.ErrOptions], with errors of the device and with the error of ctx; the
// report then holds the measurements so far.
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
	tasks, err := o.Select(tasks(m, max(1, o.Shrink)))
	if err != nil {
		return nil, fmt.Errorf("layer: %w", err)
	}
	report := m.Report("layer")
	if err := m.Measure(ctx, o.Turns, tasks, report); err != nil {
		return report, fmt.Errorf("layer: %w", err)
	}
	return report, nil
}

// ours is the name of the measured program.
const ours = "lorafuse"

// target is the linear layer for the GPU target, with targetRank.
var target = size{8192, 4096, 4096, 0}

const targetRank = 16

// tasks returns tasks that compare layers with adapters with the frozen layer. Weights are bf16, as in files.
func tasks(machine *program.Machine, shrink int) (tasks []bench.Task) {
	sizes := []size{{2048, 2048, 2048, 0}}
	if machine.OnGPU() {
		sizes = append(sizes, target)
	}
	for _, precision := range []backend.Precision{backend.F32, backend.BF16} {
		group := "Forward and backward, bf16"
		if precision == backend.F32 {
			group = "Forward and backward, f32 × bf16 weights"
		}
		for _, full := range sizes {
			z := size{max(1, full.m/shrink), max(1, full.k/shrink), max(1, full.n/shrink), 0}
			row := func(name string) *bench.Row {
				return &bench.Row{Group: group, Program: ours, Name: name, Input: z.String()}
			}
			alone := row("frozen layer alone")
			tasks = append(tasks, machine.Task(alone, precision, func() program.Spec { return layer(z, 0) }))
			for _, r := range []int{8, 16, 64} {
				z := size{z.m, z.k, z.n, r}
				for _, p := range []float64{0, 0.1} {
					name := fmt.Sprintf("LoRA r=%d", z.r)
					if p > 0 {
						name += fmt.Sprintf(", dropout %g", p)
					}
					t := machine.Task(row(name), precision, func() program.Spec { return layer(z, p) })
					if full == target && r == targetRank && p == 0 && precision == backend.BF16 {
						t.Marks = []bench.Mark{{Name: bench.TargetLayer, Row: t.Row.ID(), Beside: []string{alone.ID()}, Factor: bench.MostLayer}}
					}
					tasks = append(tasks, t)
				}
			}
		}
	}
	return tasks
}

// size is the size of a linear layer: m rows of k channels to n, with an adapter of rank r, or without one if r is 0.
type size struct{ m, k, n, r int }

func (z size) String() string { return fmt.Sprintf("m=%d k=%d n=%d", z.m, z.k, z.n) }

// layer returns the layer as models build it: its results are y and dx, and dA and dB of the adapter.
func layer(z size, dropout float64) program.Spec {
	g := graph.New()
	x, w := g.Param("x", tensor.F32, ir.ShapeOf(z.m, z.k)...), g.Param("w", tensor.BF16, ir.ShapeOf(z.n, z.k)...)
	dy, wrt := g.Param("dy", tensor.F32, ir.ShapeOf(z.m, z.n)...), []graph.Tensor{x}
	var y graph.Tensor
	if z.r == 0 {
		y = x.Linear(w, graph.Tensor{})
	} else {
		a, b := g.Param("a", tensor.F32, ir.ShapeOf(z.r, z.k)...), g.Param("b", tensor.F32, ir.ShapeOf(z.n, z.r)...)
		var key graph.Tensor
		if dropout > 0 {
			key = g.Of(g.IR().Param("key", ir.RandomKey))
		}
		y = x.LoRA(w, graph.Tensor{}, x.LoRADown(a, key, ir.DropoutAttr{P: dropout}), b, 2)
		wrt = append(wrt, a, b)
	}
	return program.Spec{Graph: g, Results: append(program.Gradients(y, dy, wrt), y)}
}
