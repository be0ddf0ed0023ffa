package batching

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/internal/host"
	"github.com/lorafuse/lorafuse/internal/model"
	"github.com/lorafuse/lorafuse/internal/serve/pages"
	"github.com/lorafuse/lorafuse/lora"
)

// Group generates text with one model on one or more devices, with an engine on each. The engines
// share the registry of adapters and the limit of waiting requests; each has its own KV cache. A
// request runs on one device and gets the answer of an [Engine] there. If a device is lost, its
// requests fail with backend.ErrLost, and later requests go to the others.
//
// A Group is safe for concurrent use.
type Group struct {
	engines []*Engine
	mu      sync.Mutex // held while a request is assigned to an engine
}

// NewGroup uploads a model to devices and starts an engine on each. m and the devices must stay
// open until the group is closed. Errors: those of [New].
func NewGroup(ctx context.Context, devices []backend.Device, m *model.Model, o Options) (_ *Group, err error) {
	if len(devices) == 0 {
		return nil, errors.New("batching: found no device, expected one or more")
	}
	if err := m.CheckTask(model.NextToken); err != nil {
		return nil, fmt.Errorf("batching: %w", err)
	}
	if err := o.complete(m); err != nil {
		return nil, err
	}
	g := &Group{engines: make([]*Engine, len(devices))}
	failed := make([]error, len(devices))
	parallel(len(devices), func(i int) { g.engines[i], failed[i] = newEngine(ctx, devices[i], i, m, o) })
	defer func() {
		if err != nil {
			for _, e := range g.engines {
				if e != nil {
					e.machine.close()
				}
			}
		}
	}()
	if err := errors.Join(failed...); err != nil {
		return nil, err
	}
	length := slices.MinFunc(g.engines, func(a, b *Engine) int { return a.options.MaxLength - b.options.MaxLength }).options.MaxLength
	for _, e := range g.engines {
		e.options.MaxLength = length
		o.Adapters.Slots = append(o.Adapters.Slots, e.machine)
	}
	o.Adapters.Prepare = func(s *lora.State) {
		parallel(len(g.engines), func(i int) { g.engines[i].machine.prepare(s) })
	}
	registry, err := lora.NewRegistry(m, m.Config.ModelType, m.Modules(), o.Adapters)
	if err != nil {
		return nil, fmt.Errorf("batching: %w", err)
	}
	users := new(atomic.Int32)
	users.Store(int32(len(g.engines)))
	for _, e := range g.engines {
		e.registry, e.users = registry, users
		e.open()
	}
	return g, nil
}

// Adapters returns the registry. Requests name its adapters, which may be swapped and unloaded
// while requests run.
func (g *Group) Adapters() *lora.Registry { return g.engines[0].registry }

// MaxLength returns the maximum number of tokens of prompt and answer together.
func (g *Group) MaxLength() int { return g.engines[0].options.MaxLength }

// Size returns the number of devices.
func (g *Group) Size() int { return len(g.engines) }

// Beside returns a host for training on a device, given by its index in NewGroup; see [Engine.Beside].
func (g *Group) Beside(device int) *host.Host { return g.engines[device].Beside() }

// Lost returns for each device the error by which it was lost, or nil.
func (g *Group) Lost() []error {
	lost := make([]error, len(g.engines))
	for i, e := range g.engines {
		e.mu.Lock()
		if e.failed != nil && !errors.Is(e.failed, ErrClosed) {
			lost[i] = e.failed
		}
		e.mu.Unlock()
	}
	return lost
}

// Submit is the type of [Group.Submit].
type Submit func(ctx context.Context, r Request) iter.Seq2[Token, error]

// Submit runs a request and returns an iterator over the tokens of its answers. Tokens of one
// answer are in order. The request starts with the iteration, which is possible only once. An error
// is the last element and has no token. Leaving the loop or canceling ctx ends the request. When
// the loop returns, all its resources and pages are free.
//
// Errors: ErrRequest with the cause, ErrQueue, ErrClosed, errors of [lora.Registry.Acquire] and
// [lora.Lease.Upload] for the adapter, the error of ctx, ErrPanic, and errors of decoders, samplers
// and the device.
func (g *Group) Submit(ctx context.Context, r Request) iter.Seq2[Token, error] {
	return func(yield func(Token, error) bool) {
		e, q, err := g.take(ctx, r)
		if err != nil {
			yield(Token{}, err)
			return
		}
		err = e.deliver(ctx, q, yield)
		if err != nil {
			yield(Token{}, err)
		}
	}
}

// take checks a request and adds it to the queue of an engine.
func (g *Group) take(ctx context.Context, r Request) (*Engine, *request, error) {
	if err := ctx.Err(); err != nil {
		return nil, nil, err
	}
	first := g.engines[0] // all have the same model and limits
	q := &request{Request: r, came: time.Now(), over: make(chan struct{}), out: newStream(), texts: 1}
	t, err := first.text(q)
	if err != nil {
		return nil, nil, fmt.Errorf("batching: %w: %w", ErrRequest, err)
	}
	if _, err := g.accepting(); err != nil { // before adapter files are read for it
		return nil, nil, err
	}
	switch {
	case r.Lease != nil:
		q.lease, err = r.Lease.Share()
	case r.Adapter != "":
		q.lease, err = first.registry.Acquire(ctx, r.Adapter)
	}
	if err != nil {
		if errors.Is(err, lora.ErrClosed) {
			err = ErrClosed
		}
		return nil, nil, fmt.Errorf("batching: %w", err)
	}
	if q.lease != nil {
		q.flow.adapter = q.lease.Version().Digest()
	}
	q.flow.client = r.Client
	q.root, q.long = first.roots(q)
	g.mu.Lock()
	defer g.mu.Unlock()
	for {
		engines, err := g.accepting()
		if err != nil {
			q.releaseLease()
			return nil, nil, err
		}
		if e := choose(engines, t); e.push(t) {
			return e, q, nil
		} // else it has just stopped accepting requests
	}
}

// accepting returns the engines that accept requests, or the reason why none does.
func (g *Group) accepting() (engines []*Engine, err error) {
	waiting := 0
	for _, e := range g.engines {
		e.mu.Lock()
		refused := e.refused()
		waiting += e.waiting.count
		e.mu.Unlock()
		switch {
		case refused == nil:
			engines = append(engines, e)
		case err == nil || errors.Is(refused, ErrClosed):
			err = refused
		}
	}
	most := g.engines[0].options.MaxQueue
	switch {
	case len(engines) == 0:
		return nil, err
	case waiting >= most:
		return nil, fmt.Errorf("batching: %w: %d, at most %d", ErrQueue, waiting, most)
	}
	return engines, nil
}

// Drain refuses new requests, and waits until the current ones have ended or ctx is done.
func (g *Group) Drain(ctx context.Context) error {
	for _, e := range g.engines {
		e.refuse()
	}
	for _, e := range g.engines {
		if err := e.Drain(ctx); err != nil {
			return err
		}
	}
	return nil
}

// Close ends all requests with ErrClosed and frees the device memory. Later calls of the registry
// fail.
func (g *Group) Close() {
	for _, e := range g.engines {
		e.stop()
	}
	for _, e := range g.engines {
		<-e.stopped
	}
}

// DeviceStats describes the current activity of one device.
type DeviceStats struct {
	Stats
	Device string // such as cuda:0
	Lost   error  // nil while it works
	Queued int    // tokens that a new request waits for
}

// Devices returns the state of each engine after its last step.
func (g *Group) Devices() []DeviceStats {
	lost, all := g.Lost(), make([]DeviceStats, len(g.engines))
	for i, e := range g.engines {
		all[i] = DeviceStats{Stats: e.Stats(), Device: e.name, Lost: lost[i]}
		e.mu.Lock()
		all[i].Queued = e.queued()
		e.mu.Unlock()
	}
	return all
}

// Stats returns the state of all engines together. Capacities are those of devices that are not
// lost.
func (g *Group) Stats() (all Stats) {
	running, waiting := map[string]int{}, map[string]int{}
	for _, s := range g.Devices() {
		for _, c := range s.Running {
			running[c.Adapter] += c.Requests
		}
		for _, c := range s.Waiting {
			waiting[c.Adapter] += c.Requests
		}
		all.Resident = append(all.Resident, s.Resident...)
		all.PageRows, all.PageBytes = s.PageRows, s.PageBytes
		all.Preemptions += s.Preemptions
		if s.Lost != nil {
			s.MaxResident, s.Pages = 0, pages.Stats{Queries: s.Pages.Queries, Hits: s.Pages.Hits, Evicted: s.Pages.Evicted, Copied: s.Pages.Copied}
		}
		all.MaxResident += s.MaxResident
		all.Pages = all.Pages.Plus(s.Pages)
		all.Time = all.Time.Plus(s.Time)
	}
	slices.Sort(all.Resident)
	all.Resident = slices.Compact(all.Resident)
	all.Running, all.Waiting = counts(running), counts(waiting)
	return all
}
