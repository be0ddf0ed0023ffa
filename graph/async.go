package graph

import (
	"context"
	"fmt"
	"slices"

	"github.com/lorafuse/lorafuse/ir"
	"github.com/lorafuse/lorafuse/tensor"
)

// queue holds the evaluations that wait for the device, in their order. The
// evaluator's lock guards it.
type queue struct {
	places  chan struct{} // one taken by each that has not ended
	waiting []*Pending
	running bool // a goroutine takes from waiting
}

// Pending is an evaluation under way.
type Pending struct {
	ctx  context.Context
	call *call
	done chan struct{} // closed when out and err are there
	out  []*tensor.Tensor
	err  error
	stop func() bool // of what looks for the end of ctx
}

// Wait gives the results when they are there, or the error of ctx if that ends
// first; the evaluation then goes on. It may be called more than once.
func (p *Pending) Wait(ctx context.Context) ([]*tensor.Tensor, error) {
	select {
	case <-p.done:
		return p.out, p.err
	default:
	}
	select {
	case <-p.done:
		return p.out, p.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Done is closed when the evaluation has ended.
func (p *Pending) Done() <-chan struct{} { return p.done }

// EvalAsync is Eval that does not wait for the device, whatever that is: a
// goroutine runs what was asked for, in its order, while the caller goes on.
// The formula is compiled before it returns, so that the graph may be built on;
// the data of its values must stay as they are until the evaluation has ended.
// When ctx ends, what has not begun is given up, and what runs is stopped.
func (e *Evaluator) EvalAsync(ctx context.Context, ts ...Tensor) (*Pending, error) {
	if len(ts) == 0 {
		return nil, fmt.Errorf("graph: %w: there is nothing to evaluate", ir.ErrGraph)
	}
	select {
	case e.queue.places <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	c, err := e.newCall(ts, nil, nil)
	if err != nil {
		<-e.queue.places
		return nil, err
	}
	p := &Pending{ctx: ctx, call: c, done: make(chan struct{})}
	p.stop = context.AfterFunc(ctx, func() { e.withdraw(p) })
	e.mu.Lock()
	e.stats.Queued++
	e.queue.waiting = append(e.queue.waiting, p)
	start := !e.queue.running
	e.queue.running = true
	e.mu.Unlock()
	if start {
		go e.serve()
	}
	return p, nil
}

// EvalAsync evaluates t while the caller goes on.
func (t Tensor) EvalAsync(ctx context.Context, e *Evaluator) (*Pending, error) {
	return e.EvalAsync(ctx, t)
}

// serve runs what waits until nothing does.
func (e *Evaluator) serve() {
	for {
		e.mu.Lock()
		if len(e.queue.waiting) == 0 {
			e.queue.running = false
			e.mu.Unlock()
			return
		}
		p := e.queue.waiting[0]
		e.queue.waiting = slices.Delete(e.queue.waiting, 0, 1)
		e.mu.Unlock()
		out, err := p.call.run(p.ctx)
		e.finish(p, out, err)
	}
}

// withdraw gives up an evaluation that has not begun.
func (e *Evaluator) withdraw(p *Pending) {
	e.mu.Lock()
	i := slices.Index(e.queue.waiting, p)
	if i >= 0 {
		e.queue.waiting = slices.Delete(e.queue.waiting, i, i+1)
	}
	e.mu.Unlock()
	if i >= 0 {
		e.finish(p, nil, p.ctx.Err())
	}
}

func (e *Evaluator) finish(p *Pending, out []*tensor.Tensor, err error) {
	p.stop()
	p.out, p.err = out, err
	e.mu.Lock()
	e.stats.Queued--
	e.mu.Unlock()
	close(p.done)
	<-e.queue.places
	e.release(p.call)
}
