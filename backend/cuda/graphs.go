//go:build cuda && linux

package cuda

import (
	"errors"
	"slices"

	"github.com/lorafuse/lorafuse/backend/cuda/internal/driver"
)

// graphs are the runs of a program that the driver keeps ready, by what was
// filled into them: the sizes of the bounded dimensions and the addresses of
// the arguments. A run is captured when it comes again, since many never do:
// batches of a training run differ in length.
type graphs struct {
	ready []ready // the one used last comes first
	seen  []uint64
	key   []uint64 // of the run at hand
}

type ready struct {
	key   []uint64
	graph *driver.Graph
}

// mostGraphs is how many graphs a program keeps.
const mostGraphs = 8

// mostSeen is how many runs are remembered that were not captured.
const mostSeen = 16

// graphed runs the program as a graph where it has run so before.
func (e *executable) graphed() error {
	g := &e.graphs
	g.key = g.key[:0]
	for _, n := range e.run.Dims[min(1, len(e.run.Dims)):] {
		g.key = append(g.key, uint64(n))
	}
	for _, p := range e.run.Args {
		g.key = append(g.key, uint64(p))
	}
	for i := range g.ready {
		if slices.Equal(g.ready[i].key, g.key) {
			hit := g.ready[i]
			copy(g.ready[1:i+1], g.ready[:i])
			g.ready[0] = hit
			if err := hit.graph.Launch(e.dev.compute.Stream); err != nil {
				return e.dev.failed(err)
			}
			return nil
		}
	}
	if !g.again() || len(e.launches) == 0 {
		return e.launched()
	}
	return e.capture()
}

// again tells whether a run like the one at hand was there before.
func (g *graphs) again() bool {
	h := uint64(14695981039346656037) // FNV-1a, a word at a time
	for _, x := range g.key {
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

// capture makes a graph of the run and launches it. Where the driver cannot,
// the device runs launch by launch from then on.
func (e *executable) capture() error {
	s := e.dev.compute.Stream
	if err := driver.BeginCapture(s); err != nil {
		return e.instead(err)
	}
	e.fill(0, e.plan.Len())
	if err := e.issue(0, e.plan.Len()); err != nil {
		driver.AbortCapture(s)
		return err
	}
	graph, err := driver.EndCapture(s)
	if err != nil {
		return e.instead(err)
	}
	g := &e.graphs
	if len(g.ready) == mostGraphs {
		// Its last run is over: runs of a program follow each other.
		_ = g.ready[mostGraphs-1].graph.Close()
		g.ready = g.ready[:mostGraphs-1]
	}
	g.ready = slices.Insert(g.ready, 0, ready{slices.Clone(g.key), graph})
	if err := graph.Launch(s); err != nil {
		return e.dev.failed(err)
	}
	return nil
}

// instead runs without graphs after an error of making one.
func (e *executable) instead(err error) error {
	if driver.Fatal(err) {
		return e.dev.failed(err)
	}
	if errors.Is(err, driver.NotSupported) {
		e.dev.graphs = false
	}
	return e.launched()
}

// clear destroys the graphs.
func (g *graphs) clear() {
	for _, r := range g.ready {
		_ = r.graph.Close()
	}
	*g = graphs{}
}
