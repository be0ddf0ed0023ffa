package layer

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"

	"github.com/lorafuse/lorafuse/dev/bench"
	"github.com/lorafuse/lorafuse/dev/bench/program"
	"github.com/lorafuse/lorafuse/internal/philox"
)

// The sweep.
const (
	sweepGroup  = "Sweep, fused beside unfused"
	fusedName   = "fused"
	unfusedName = "unfused"
	maxSweep    = 10_000
	worstShown  = 10 // shapes in tables; JSON has all
)

// sizes are those of the sweep, the same ones each time: spread evenly over the
// orders of magnitude, every other one with k and n a multiple of 64.
func sizes(n int) []size {
	all := make([]size, n)
	for i := range all {
		random := philox.NewStream(1, uint32(i), 0)
		draw := func(at uint64, low, high float64) int {
			return int(math.Round(low * math.Pow(high/low, float64(random.Uniform(at)))))
		}
		z := size{draw(0, 1, 2048), draw(1, 64, 8192), draw(2, 64, 8192), draw(3, 1, 128)}
		if i%2 == 1 {
			z.k, z.n = max(64, z.k/64*64), max(64, z.n/64*64)
		}
		all[i] = z
	}
	return all
}

// sweep lists fused and unfused layers, those of both precisions in turn.
func (s *suite) sweep() (tasks []bench.Task) {
	for i, z := range sizes(s.Sweep) {
		z = size{s.shrunk(z.m), s.shrunk(z.k), s.shrunk(z.n), s.shrunk(z.r)}
		k := kinds[i/2%len(kinds)]
		for _, how := range []string{fusedName, unfusedName} {
			row := &bench.Row{Group: sweepGroup, Program: ours, Name: how, Input: fmt.Sprintf("%d: %v r=%d %s", i+1, z, z.r, k.name)}
			tasks = append(tasks, s.machine.Task(row, k.precision, func() program.Spec {
				if how == fusedName {
					return fused(z, 0)
				}
				return unfused(z)
			}))
		}
	}
	return tasks
}

// ratio is a shape of the sweep with what was found.
type ratio struct{ fused, unfused bench.Task }

func (r *ratio) value() float64 {
	return r.fused.Row.Figures().Median / r.unfused.Row.Figures().Median
}

// again is how often a shape that was slower is measured once more, with all of
// its samples counting: of some hundred medians of a shared machine, a few are
// off by more than there is between the two.
const again = 2

// judgeSweep holds the worst shape against the mark, and leaves only the worst
// ones to tables.
func (s *suite) judgeSweep(ctx context.Context, tasks []bench.Task, report *bench.Report) error {
	var all []ratio
	for i := range tasks {
		// A pair that --only has torn apart says nothing.
		if i+1 < len(tasks) && tasks[i].Row.Group == sweepGroup && tasks[i].Row.Name == fusedName && tasks[i+1].Row.Input == tasks[i].Row.Input {
			all = append(all, ratio{tasks[i], tasks[i+1]})
		}
	}
	if len(all) == 0 {
		return nil
	}
	for range again {
		if err := s.repeat(ctx, all); err != nil {
			return err
		}
	}
	slices.SortFunc(all, func(a, b ratio) int { return cmp.Compare(b.value(), a.value()) })
	ratios := make([]float64, len(all))
	for i := range all {
		ratios[i] = all[i].value()
		all[i].fused.Row.Detail = fmt.Sprintf("%.3f of unfused", ratios[i])
		all[i].fused.Row.Quiet, all[i].unfused.Row.Quiet = i >= worstShown, i >= worstShown
	}
	worst := all[0]
	report.Marks = append(report.Marks, bench.Mark{
		Name: fmt.Sprintf("fused never slower, the worst of %d shapes (median of all %.3f)", len(all), bench.Quantile(ratios, 0.5)),
		Row:  worst.fused.Row.ID(), Beside: []string{worst.unfused.Row.ID()}, Factor: 1,
	})
	return nil
}

// repeat measures those again that were slower.
func (s *suite) repeat(ctx context.Context, all []ratio) error {
	var tasks []bench.Task
	for i := range all {
		if all[i].value() > 1 {
			tasks = append(tasks, all[i].fused, all[i].unfused)
		}
	}
	var once bench.Report // its rows are those that are there
	turns := s.Turns
	turns.Save = nil
	return s.machine.Measure(ctx, turns, tasks, &once)
}
