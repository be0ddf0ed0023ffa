//go:build cuda && linux

package driver

/*
#include <cuda.h>

static CUresult begin(CUstream s) { return cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL); }

// end makes an executable graph of what was captured; the graph itself is of no
// more use then.
static CUresult end(CUstream s, int keep, CUgraphExec *exec) {
	CUgraph graph = 0;
	CUresult r = cuStreamEndCapture(s, &graph);
	if (!r && keep) r = cuGraphInstantiateWithFlags(exec, graph, 0);
	if (graph) cuGraphDestroy(graph);
	return r;
}
*/
import "C"

import "gorgonia.org/cu"

// Graph is launches that the driver has prepared as a whole: launching it costs
// as much as launching a kernel or two.
type Graph struct{ exec C.CUgraphExec }

// BeginCapture makes s record the following work instead of running it. Errors: NotSupported.
func BeginCapture(s cu.Stream) error { return check(C.begin(stream(s))) }

// EndCapture returns a graph of the recorded work.
func EndCapture(s cu.Stream) (*Graph, error) {
	g := &Graph{}
	if err := check(C.end(stream(s), 1, &g.exec)); err != nil {
		return nil, err
	}
	return g, nil
}

// AbortCapture discards the recorded work.
func AbortCapture(s cu.Stream) {
	var exec C.CUgraphExec
	_ = C.end(stream(s), 0, &exec)
}

// Launch enqueues the graph.
func (g *Graph) Launch(s cu.Stream) error { return check(C.cuGraphLaunch(g.exec, stream(s))) }

// Close destroys the graph, which must not be running.
func (g *Graph) Close() error {
	if g == nil || g.exec == nil {
		return nil
	}
	exec := g.exec
	g.exec = nil
	return check(C.cuGraphExecDestroy(exec))
}
