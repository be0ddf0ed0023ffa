package layer

import (
	"context"
	"fmt"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/dev/bench"
	"github.com/lorafuse/lorafuse/dev/bench/program"
)

// overheads returns tasks that compare layers with adapters with the frozen layer. The limit on the overhead is the
// adapter's share of the operations plus a twentieth.
func (s *suite) overheads() (tasks []bench.Task) {
	for _, k := range kinds {
		sizes := []size{{512, 2048, 2048, 0}, {512, 2048, 5632, 0}, {1024, 5632, 2048, 0}, {2048, 2048, 2048, 0}}
		if s.machine.OnGPU() {
			sizes = append(sizes, target)
		}
		for _, z := range sizes {
			full := z
			z = size{s.shrunk(z.m), s.shrunk(z.k), s.shrunk(z.n), 0}
			row := func(name string) *bench.Row {
				return &bench.Row{Group: "Forward and backward, " + k.name, Program: ours, Name: name, Input: z.String()}
			}
			alone := row("frozen layer alone")
			tasks = append(tasks, s.machine.Task(alone, k.precision, func() program.Spec { return frozen(z) }))
			for _, r := range []int{8, 16, 64} {
				z := size{z.m, z.k, z.n, r}
				for _, p := range []float64{0, 0.1} {
					name := fmt.Sprintf("LoRA r=%d", z.r)
					if p > 0 {
						name += fmt.Sprintf(", dropout %g", p)
					}
					t := s.machine.Task(row(name), k.precision, func() program.Spec { return fused(z, p) })
					switch mark := (bench.Mark{Row: t.Row.ID(), Beside: []string{alone.ID()}}); {
					case !s.machine.OnGPU():
						mark.Name, mark.Factor = name+", "+k.name+", "+z.String()+": its own work, and 5 %", allowed(z)
						t.Marks = []bench.Mark{mark}
					case full == target && r == targetRank && p == 0 && k.precision == backend.BF16:
						mark.Name, mark.Factor = bench.TargetLayer, bench.MostLayer
						t.Marks = []bench.Mark{mark}
					}
					tasks = append(tasks, t)
				}
				tasks = append(tasks, s.machine.Task(row(fmt.Sprintf("LoRA r=%d, unfused", z.r)), k.precision, func() program.Spec { return unfused(z) }))
			}
		}
	}
	return tasks
}

// target is the linear layer for the GPU target, with targetRank.
var target = size{8192, 4096, 4096, 0}

const targetRank = 16

// allowed returns the maximum time of a layer with an adapter relative to the frozen layer, forward and backward. The
// frozen layer does 4mkn operations, the adapter 6mr(k+n).
func allowed(z size) float64 {
	return 1.05 * (1 + 1.5*float64(z.r)*float64(z.k+z.n)/(float64(z.k)*float64(z.n)))
}

// single returns tasks for adapters alone, (x A B)·s, in published sizes, with torch for comparison.
func (s *suite) single() (tasks []bench.Task) {
	for _, z := range []struct{ m, d, r int }{
		{1, 16, 4}, {8, 64, 8}, {4, 512, 8}, {64, 512, 8}, {128, 512, 8}, {64, 1024, 8}, {64, 1024, 64}, {64, 2048, 8},
	} {
		m, d := s.shrunk(z.m), s.shrunk(z.d)
		row := &bench.Row{Group: "Adapter alone, (x A B)·s", Program: ours, Name: "f32", Input: fmt.Sprintf("%d×%d r=%d", m, d, z.r)}
		t := s.machine.Task(row, backend.F32, func() program.Spec { return pair(m, d, z.r) })
		tasks = append(tasks, t)
		if s.torch == nil {
			continue
		}
		theirs := *row
		theirs.Program, theirs.Peak = torch, bench.Peak{}
		tasks[len(tasks)-1].Marks = []bench.Mark{{Name: "adapter alone: torch", Row: row.ID(), Beside: []string{theirs.ID()}, Factor: 1}}
		tasks = append(tasks, bench.Task{Row: &theirs, Foreign: true, Begin: func(ctx context.Context) (bench.Sampler, error) {
			return s.torch.Begin(ctx, map[string]any{"op": "lora", "m": m, "d": d, "r": z.r})
		}})
	}
	return tasks
}
