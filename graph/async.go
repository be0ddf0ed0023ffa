package graph

import (
	"context"
	"fmt"
	"slices"

	"github.com/lorafuse/lorafuse/internal/ir"
	"github.com/lorafuse/lorafuse/tensor"
)

// queue holds the evaluations that wait for the device, in order. The evaluator's lock guards it.
type queue struct {
	places  chan struct{} // one token per unfinished evaluation
	waiting []*Pending
	running bool // a goroutine is serving waiting
}

// Pending is an evaluation in progress.
type Pending struct {
	ctx  context.Context
	call *call
	done chan struct{} // closed once out and err are set
	out  []*tensor.Tensor
	err  error
	stop func() bool // stops watching ctx
}

// Wait blocks until the results are available and returns them. If ctx ends first, Wait returns its error and the
// evaluation continues. Wait may be called more than once.
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

// Done returns a channel that is closed when the evaluation has ended.
func (p *Pending) Done() <-chan struct{} { return p.done }

// EvalAsync starts an evaluation and returns without waiting for the device. A goroutine runs evaluations in the order
// of the calls. The formula is compiled before EvalAsync returns, so the caller may extend the graph; the data of its
// values must not change until the evaluation has ended. When ctx ends, queued evaluations are dropped and a running
// one is stopped.
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

// EvalAsync starts an evaluation of t; see [Evaluator.EvalAsync].
func (t Tensor) EvalAsync(ctx context.Context, e *Evaluator) (*Pending, error) {
	return e.EvalAsync(ctx, t)
}

// serve runs queued evaluations until the queue is empty.
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

// withdraw drops an evaluation that has not started.
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
