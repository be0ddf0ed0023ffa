//go:build cuda && linux

package cuda

import (
	"errors"
	"slices"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/backend/cuda/internal/driver"
	"github.com/lorafuse/lorafuse/backend/gpu"
)

// graphs caches CUDA graphs of a program's runs. The key holds the sizes of the bounded dimensions and the addresses
// of the arguments and of the trap; pending runs have different traps. A run is captured only when it repeats, since
// many runs never do: training batches differ in length.
type graphs struct {
	ready    []ready // the one used last comes first
	seen     []uint64
	key      []uint64 // of the current run; the trap is last
	replayed int      // runs that a graph of an earlier run has launched
}

type ready struct {
	key   []uint64
	graph *driver.Graph
}

// mostGraphs is the number of graphs kept per program: as many as there are padded sizes of served steps that alternate.
// It exceeds the number of pending runs, so the least recently used graph is never pending.
const mostGraphs = 8 * backend.MaxInFlight

// mostSeen is the number of uncaptured runs that are remembered.
const mostSeen = 2 * mostGraphs

// graphed launches the run as a graph if an equal run was seen before. A graph that is still pending is launched again
// after its earlier run.
func (p *program) graphed(f *gpu.Flight) error {
	g := &p.graphs
	g.key = g.key[:0]
	for _, n := range f.Dims[min(1, len(f.Dims)):] {
		g.key = append(g.key, uint64(n))
	}
	for _, at := range f.Args {
		g.key = append(g.key, uint64(at))
	}
	g.key = append(g.key, uint64(f.Trap))
	for i := range g.ready {
		if slices.Equal(g.ready[i].key, g.key) {
			hit := g.ready[i]
			copy(g.ready[1:i+1], g.ready[:i])
			g.ready[0] = hit
			g.replayed++
			if err := hit.graph.Launch(p.dev.compute.Stream); err != nil {
				return p.dev.Failed(err)
			}
			return nil
		}
	}
	if !g.again() || len(p.Launches) == 0 {
		return f.Batches(p.issue)
	}
	return p.capture(f)
}

// again reports whether an equal run was seen before, with any trap.
func (g *graphs) again() bool {
	h := uint64(14695981039346656037) // FNV-1a, a word at a time
	for _, x := range g.key[:len(g.key)-1] {
		h = (h ^ x) * 1099511628211
		h ^= h >> 29
	}
	if slices.Contains(g.seen, h) {
		return true
	}
	if g.seen == nil {
		g.seen = make([]uint64, 0, mostSeen)
	}
	if len(g.seen) == mostSeen {
		copy(g.seen, g.seen[1:])
		g.seen = g.seen[:mostSeen-1]
	}
	g.seen = append(g.seen, h)
	return false
}

// capture captures the run as a graph and launches it. If the driver does not support capture, the device uses single
// launches for all later runs.
func (p *program) capture(f *gpu.Flight) error {
	s := p.dev.compute.Stream
	if err := driver.BeginCapture(s); err != nil {
		return p.instead(f, err)
	}
	if err := f.Fill(0, p.Plan.Len(), p.issue); err != nil {
		driver.AbortCapture(s)
		return err
	}
	graph, err := driver.EndCapture(s)
	if err != nil {
		return p.instead(f, err)
	}
	g := &p.graphs
	if len(g.ready) == mostGraphs {
		_ = g.ready[mostGraphs-1].graph.Close()
		g.ready = g.ready[:mostGraphs-1]
	}
	g.ready = slices.Insert(g.ready, 0, ready{slices.Clone(g.key), graph})
	if err := graph.Launch(s); err != nil {
		return p.dev.Failed(err)
	}
	return nil
}

// instead runs without graphs after an error of making one.
func (p *program) instead(f *gpu.Flight, err error) error {
	if driver.Fatal(err) {
		return p.dev.Failed(err)
	}
	if errors.Is(err, driver.NotSupported) {
		p.dev.graphs = false
	}
	return f.Batches(p.issue)
}

// clear destroys the graphs.
func (g *graphs) clear() {
	for _, r := range g.ready {
		_ = r.graph.Close()
	}
	*g = graphs{}
}
