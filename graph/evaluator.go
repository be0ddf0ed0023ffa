package graph

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/graph/exec"
	"github.com/lorafuse/lorafuse/internal/ir"
	"github.com/lorafuse/lorafuse/internal/suggest"
	"github.com/lorafuse/lorafuse/tensor"
)

// EvaluatorOptions configures the cache and the queue of an [Evaluator].
type EvaluatorOptions struct {
	// Plans is the maximum number of compiled formulas; the least recently used is evicted. Zero means 64.
	Plans int
	// Depth is the maximum number of queued evaluations; EvalAsync blocks while the queue is full. Zero means 64.
	Depth int
}

// Evaluator evaluates tensors on one device and caches compiled formulas. A formula that was evaluated before, in this
// graph or in another one built in the same way, runs at once with the current data. It is safe for concurrent use, but
// a graph must not be extended while its tensors are evaluated.
type Evaluator struct {
	dev      backend.Device
	options  EvaluatorOptions
	readings sync.Pool // of *reading
	calls    sync.Pool // of *call
	inPlace  func() bool

	mu     sync.Mutex
	idle   sync.Cond // signals that no evaluation is in progress
	plans  map[uint64][]*plan
	count  int    // number of plans
	clock  uint64 // number of uses
	active int    // evaluations in progress or queued
	closed bool
	stats  EvaluatorStats

	queue queue
}

// EvaluatorStats counts the work of an [Evaluator].
type EvaluatorStats struct {
	Hits, Misses, Evictions int
	Plans                   int // currently cached
	Queued                  int // unfinished evaluations of EvalAsync
}

// NewEvaluator returns an evaluator for a device, which must outlive it.
func NewEvaluator(dev backend.Device, o EvaluatorOptions) *Evaluator {
	const plans, depth = 64, 64
	if o.Plans <= 0 {
		o.Plans = plans
	}
	if o.Depth <= 0 {
		o.Depth = depth
	}
	e := &Evaluator{dev: dev, options: o, plans: map[uint64][]*plan{}}
	e.readings.New = func() any { return &reading{} }
	e.calls.New = func() any { return &call{} }
	e.inPlace = sync.OnceValue(func() bool { return importsInPlace(dev) })
	e.idle.L = &e.mu
	e.queue.places = make(chan struct{}, o.Depth)
	return e
}

// Stats returns the counts so far.
func (e *Evaluator) Stats() EvaluatorStats {
	e.mu.Lock()
	defer e.mu.Unlock()
	s := e.stats
	s.Plans = e.count
	return s
}

// Eval computes tensors of one graph. All params that they depend on must be values (see [Graph.Value]).
func (e *Evaluator) Eval(ctx context.Context, ts ...Tensor) ([]*tensor.Tensor, error) {
	return e.EvalWith(ctx, ts, nil, nil)
}

// EvalWith computes tensors of one graph, with data for params by name and sizes of bounded dimensions by name. Other
// dimensions have their maximum size.
func (e *Evaluator) EvalWith(ctx context.Context, ts []Tensor, args map[string]*tensor.Tensor, dims map[string]int) ([]*tensor.Tensor, error) {
	if len(ts) == 0 {
		return nil, nil
	}
	c, err := e.newCall(ts, args, dims)
	if err != nil {
		return nil, err
	}
	defer e.release(c)
	return c.run(ctx)
}

// Eval computes the tensor with e.
func (t Tensor) Eval(ctx context.Context, e *Evaluator) (*tensor.Tensor, error) {
	out, err := e.Eval(ctx, t)
	if err != nil {
		return nil, err
	}
	return out[0], nil
}

// Eval computes tensors of one graph on a device. args holds the params by name; dims holds sizes of bounded dimensions
// by name, which default to their maximum. The compiled program is not kept; use an [Evaluator] to reuse it.
func Eval(ctx context.Context, dev backend.Device, ts []Tensor, args map[string]*tensor.Tensor, dims map[string]int) (_ []*tensor.Tensor, err error) {
	e := NewEvaluator(dev, EvaluatorOptions{Plans: 1})
	defer func() { err = errors.Join(err, e.Close()) }()
	return e.EvalWith(ctx, ts, args, dims)
}

// Close waits for evaluations in progress and frees all cached programs. Later evaluations fail with
// [backend.ErrClosed].
func (e *Evaluator) Close() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.closed = true
	for e.active > 0 {
		e.idle.Wait()
	}
	var errs []error
	for _, list := range e.plans {
		for _, p := range list {
			errs = append(errs, p.close())
		}
	}
	clear(e.plans)
	e.count = 0
	return errors.Join(errs...)
}

// newCall finds or compiles the plan for the tensors and gathers their data. The plan is held until release.
func (e *Evaluator) newCall(ts []Tensor, args map[string]*tensor.Tensor, dims map[string]int) (*call, error) {
	g := ts[0].g
	if g == nil {
		return nil, fmt.Errorf("graph: %w: the zero Tensor has no value", ir.ErrGraph)
	}
	r := e.readings.Get().(*reading)
	defer e.readings.Put(r)
	r.graph, r.roots = g.ir, r.roots[:0]
	defer func() { r.graph = nil }()
	for _, t := range ts {
		r.roots = append(r.roots, g.value(t))
	}
	if err := g.Err(); err != nil {
		return nil, err
	}
	if slices.Contains(r.roots, 0) {
		return nil, fmt.Errorf("graph: %w: the zero Tensor has no value", ir.ErrGraph)
	}
	if err := g.named(args); err != nil {
		return nil, err
	}
	p := e.again(g, r)
	if p == nil {
		r.read()
		var err error
		if p, err = e.acquire(g, r); err != nil {
			return nil, err
		}
		g.last.Store(&memo{slices.Clone(r.roots), slices.Clone(r.params), p.formula})
	}
	c := e.calls.Get().(*call)
	c.plan = p
	if err := c.gather(g, r, args, dims); err != nil {
		e.release(c)
		return nil, err
	}
	return c, nil
}

// named returns an error for a name in args that is not a param of the graph.
func (g *Graph) named(args map[string]*tensor.Tensor) error {
	if len(args) == 0 {
		return nil
	}
	for _, name := range slices.Sorted(maps.Keys(args)) {
		if _, ok := g.ir.Lookup(name); !ok {
			return fmt.Errorf("graph: %w: there is no param %q%s", exec.ErrArgument, name, suggest.DidYouMean(name, g.ir.ParamNames()))
		}
	}
	return nil
}

// memo records the roots, params and formula of the last evaluation of a graph. Nodes of a graph never change, so it
// stays valid for the same roots.
type memo struct {
	roots, params []ir.Value
	formula       *formula
}

// again returns the plan of the last evaluation of the graph if r has the same roots, and sets the params of r as if it
// had read them.
func (e *Evaluator) again(g *Graph, r *reading) *plan {
	m := g.last.Load()
	if m == nil || !slices.Equal(m.roots, r.roots) || len(m.formula.bounds) != len(g.ir.Bounds) {
		return nil
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, p := range e.plans[m.formula.hash] {
		if p.formula == m.formula && !e.closed && p.compiled() {
			r.params = append(r.params[:0], m.params...)
			e.enter(p)
			e.stats.Hits++
			return p
		}
	}
	return nil
}

// enter starts a use of a plan.
func (e *Evaluator) enter(p *plan) {
	e.active++
	e.clock++
	p.users++
	p.used = e.clock
}

// acquire returns the plan of a formula, and compiles it if necessary.
func (e *Evaluator) acquire(g *Graph, r *reading) (*plan, error) {
	e.mu.Lock()
	if e.closed {
		e.mu.Unlock()
		return nil, fmt.Errorf("graph: evaluator: %w", backend.ErrClosed)
	}
	for _, p := range e.plans[r.hash] {
		if r.is(p.formula) {
			e.enter(p)
			e.stats.Hits++
			e.mu.Unlock()
			if <-p.ready; p.err != nil {
				e.leave(p)
				return nil, p.err
			}
			return p, nil
		}
	}
	p := &plan{formula: r.formula(), ready: make(chan struct{}), turn: make(chan struct{}, 1)}
	e.enter(p)
	e.plans[r.hash] = append(e.plans[r.hash], p)
	e.count++
	e.stats.Misses++
	old := e.evict(e.options.Plans)
	e.mu.Unlock()
	closeAll(old)
	p.err = p.compile(e, g, r)
	if errors.Is(p.err, backend.ErrOutOfMemory) {
		e.mu.Lock()
		old = e.evict(0)
		e.mu.Unlock()
		if len(old) > 0 { // freeing their memory may let the compilation succeed
			closeAll(old)
			p.err = p.compile(e, g, r)
		}
	}
	close(p.ready)
	if p.err != nil {
		e.mu.Lock()
		e.forget(p)
		e.mu.Unlock()
		e.leave(p)
		return nil, p.err
	}
	return p, nil
}

// release ends a call.
func (e *Evaluator) release(c *call) {
	p := c.plan
	c.reset()
	e.calls.Put(c)
	e.leave(p)
}

// leave ends a use of a plan.
func (e *Evaluator) leave(p *plan) {
	e.mu.Lock()
	p.users--
	old := e.evict(e.options.Plans)
	if e.active--; e.active == 0 {
		e.idle.Broadcast()
	}
	e.mu.Unlock()
	closeAll(old)
}

// evict removes unused plans, least recently used first, until at most most are left. It returns the removed plans,
// which the caller must close.
func (e *Evaluator) evict(most int) (old []*plan) {
	for e.count > most {
		var oldest *plan
		for _, list := range e.plans {
			for _, p := range list {
				if p.users == 0 && (oldest == nil || p.used < oldest.used) {
					oldest = p
				}
			}
		}
		if oldest == nil {
			break
		}
		e.forget(oldest)
		e.stats.Evictions++
		old = append(old, oldest)
	}
	return old
}

func (e *Evaluator) forget(p *plan) {
	list := e.plans[p.formula.hash]
	if i := slices.Index(list, p); i >= 0 {
		e.count--
		if list = slices.Delete(list, i, i+1); len(list) == 0 {
			delete(e.plans, p.formula.hash)
			return
		}
		e.plans[p.formula.hash] = list
	}
}

// closeAll frees the memory of evicted plans. Errors are ignored, since they do not concern the current evaluation.
func closeAll(ps []*plan) {
	for _, p := range ps {
		_ = p.close()
	}
}
