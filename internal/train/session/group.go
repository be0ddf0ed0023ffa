package session

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/internal/host"
	"github.com/lorafuse/lorafuse/internal/train/trainer"
)

// Group is a set of sessions on one host. Their calls may be concurrent; those that wait at the
// same time are computed together, one datum of each in a pass, if that leaves every bit of
// their results unchanged.
type Group struct {
	host     *host.Host
	byLength func() bool // see [engine.Draft.ByLength]

	mu      sync.Mutex
	waiting []*call

	turn   chan struct{} // has an element while a goroutine computes, which owns the fields below
	active []*call
	tokens int // of a pass with data of several sessions, at most
	passes map[kind]*trainer.Pass
	feed   feed
}

// NewGroup returns a group without sessions. The caller keeps ownership of the host. Closing the
// host closes the sessions.
func NewGroup(h *host.Host) *Group {
	g := &Group{host: h, turn: make(chan struct{}, 1), tokens: trainer.MultiAdapterTokens, passes: map[kind]*trainer.Pass{}}
	g.byLength = sync.OnceValue(func() bool {
		s, err := h.NewSlot(nil)
		if err != nil {
			return true
		}
		p := kind{form: forward, width: 1, tokens: leastTokens, rows: leastTokens}.pass()
		d, err := h.Plan(s, p.Spec(h.Model()))
		return err != nil || d.ByLength()
	})
	return g
}

// call is a call of [Session.ForwardBackward] in progress. It belongs to the goroutine that
// computes until finished is closed.
type call struct {
	ctx     context.Context
	session *Session
	data    []Datum
	loss    *loss
	form    form
	out     *Output // with a slice for the log-probabilities of each datum

	next     int   // datum
	begun    bool  // gradients may have changed
	err      error // of datum next
	done     bool
	finished chan struct{} // closed when done
}

// datum returns the next datum.
func (c *call) datum() *Datum { return &c.data[c.next] }

// finish records the result of the next datum.
func (c *call) finish(begun bool, err error) {
	c.begun = c.begun || begun
	if c.err = err; err == nil {
		c.next++
	}
	if c.done = err != nil || c.next == len(c.data); c.done {
		close(c.finished)
	}
}

// errPanic: a pass panicked on the goroutine of another call.
var errPanic = errors.New("a call that was computed together with this one has panicked")

// compute computes a call. The goroutine that has the turn also computes the data of others, as
// long as its own call is not done.
func (g *Group) compute(c *call) {
	g.mu.Lock()
	g.waiting = append(g.waiting, c)
	g.mu.Unlock()
	select {
	case <-c.finished:
		return
	case g.turn <- struct{}{}:
	}
	defer func() { <-g.turn }()
	defer func() {
		if !c.done { // by a panic
			for _, x := range g.active {
				if !x.done {
					x.finish(true, errPanic)
				}
			}
			g.active = nil
		}
	}()
	for !c.done {
		g.mu.Lock()
		g.active, g.waiting = append(g.active, g.waiting...), nil
		g.mu.Unlock()
		left := g.active
		if len(left) == 1 {
			g.pass(left)
			left = nil
		}
		for len(left) > 0 {
			var taken []*call
			taken, left = trainer.Fill(left, g.tokens, func(c *call) int { return max(leastTokens, len(c.datum().Tokens)) }, g.suit)
			g.pass(taken)
		}
		g.active = slices.DeleteFunc(g.active, func(c *call) bool { return c.done })
	}
}

// suit reports whether the data of two calls can be in one pass. Calls of different contexts
// cannot, since they may be canceled one by one.
func (g *Group) suit(a, b *call) bool {
	return a.session.apart == "" && b.session.apart == "" && a.form == b.form && a.datum().width() == b.datum().width() &&
		a.ctx.Done() == b.ctx.Done() && !g.byLength()
}

// pass computes the next datum of each call.
func (g *Group) pass(calls []*call) {
	if len(calls) > 1 {
		// Equal lists of shapes share a program.
		slices.SortStableFunc(calls, func(a, b *call) int { return strings.Compare(a.session.slot.Shape(), b.session.slot.Shape()) })
	}
	tokens, longest, targets := 0, 0, 0
	for _, c := range calls {
		d := c.datum()
		tokens, longest, targets = tokens+len(d.Tokens), max(longest, len(d.Tokens)), targets+len(d.Targets)
	}
	s := calls[0].session
	what := s.kindOf(tokens, calls[0].datum().width(), calls[0].form, len(calls))
	p := g.passes[what]
	if p == nil {
		p = what.pass()
		g.passes[what] = p
	}
	t, logprobs := s.trainer, calls[0].out.Logprobs[calls[0].next]
	if len(calls) > 1 {
		var trainers []*trainer.Trainer
		for _, c := range calls {
			trainers = append(trainers, c.session.trainer)
		}
		t, logprobs = trainer.MultiAdapter(trainers...), make([]float32, targets)
	}
	ctx := calls[0].ctx
	begun, err := false, ctx.Err()
	if err == nil {
		g.feed.set(calls, what, s.model.vocabulary)
		begun, err = t.Compute(ctx, p, &g.feed, longest, trainer.Output{Result: lossesResult, To: logprobs})
	}
	if len(calls) > 1 && !begun && errors.Is(err, backend.ErrOutOfMemory) {
		g.tokens = tokens / 2
		for _, c := range calls {
			g.pass([]*call{c})
		}
		return
	}
	for i, loss := range logprobs {
		logprobs[i] = 0 - loss
	}
	for _, c := range calls {
		if own := c.out.Logprobs[c.next]; len(calls) > 1 {
			logprobs = logprobs[copy(own, logprobs):]
		}
		c.finish(begun || err == nil, err)
	}
}
