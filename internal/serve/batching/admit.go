package batching

import (
	"errors"
	"slices"
	"time"

	"github.com/lorafuse/lorafuse/lora"
)

// This file schedules which texts run.

// patience is the number of requests per sequence slot that may start while the next request waits
// for device memory for its adapter. After that, the others wait for it.
const patience = 2

// admit starts texts while there is room: preempted texts first, then waiting ones in fair order.
func (e *Engine) admit() {
	begun := len(e.running)
	for len(e.parked) > 0 && e.room() && e.fits(e.parked[0]) {
		t := e.parked[0]
		e.parked = slices.Delete(e.parked, 0, 1)
		e.start(t)
	}
	for len(e.parked) == 0 && e.room() {
		t := e.choose()
		if t == nil {
			break
		}
		e.mu.Lock()
		e.waiting.started(t.r.flow) // first, so that the flow stays busy
		e.waiting.remove(t)
		e.mu.Unlock()
		e.orders++
		t.order = e.orders
		e.start(t)
	}
	if len(e.running) > begun {
		e.publish()
	}
}

// room reports whether another text may run.
func (e *Engine) room() bool { return len(e.running) < e.options.MaxTexts }

// choose returns the next text to start, whose adapter is then on the device. It returns nil if no
// text waits, or the next has to wait longer.
func (e *Engine) choose() *text {
	e.mu.Lock()
	heads := e.waiting.heads()
	e.mu.Unlock()
	var passed []*text
	for _, t := range heads {
		if !e.fits(t) {
			return nil // others would take the pages that this text waits for
		}
		var err error
		if t.r.lease != nil {
			err = t.r.lease.Upload(e.context, e.device)
		}
		switch {
		case err == nil:
			for _, p := range passed {
				p.r.passed++
			}
			return t
		case errors.Is(err, lora.ErrFull) && len(e.running) > 0:
			if t.r.passed >= patience*e.options.MaxTexts {
				return nil
			}
			passed = append(passed, t)
		default:
			e.drop(t.r, err)
		}
	}
	return nil
}

// fits reports whether the pool has pages for a text. It leaves each running text the pages for its
// unread tokens and one more.
func (e *Engine) fits(t *text) bool {
	if len(e.running) == 0 {
		return true
	}
	s := e.pool.Stats()
	have := s.Free + s.Cached - len(e.running)
	for _, o := range e.running {
		have -= e.options.pagesOf(len(o.tokens())) - len(o.pages.Pages())
	}
	need := e.options.pagesOf(len(t.tokens()))
	if need <= have {
		return true
	}
	found, idle := e.pool.Find(t.root(e.machine), t.known())
	return need-found <= have-idle
}

// start starts a text, or resumes it.
func (e *Engine) start(t *text) {
	e.begin(t)
	if t.r.begun.IsZero() {
		t.r.begun, t.r.cached = time.Now(), t.pages.Len()
	}
	e.enter(t)
}

// begin gives a text the pages of its tokens that are cached.
func (e *Engine) begin(t *text) {
	t.began = t.root(e.machine)
	t.pages = e.pool.Begin(t.began, t.known())
}

// enter inserts a text into the running list, in order.
func (e *Engine) enter(t *text) {
	i := len(e.running)
	for i > 0 && e.running[i-1].order > t.order {
		i--
	}
	e.running = slices.Insert(e.running, i, t)
}

// park preempts a text: it releases the pages and resumes the text when there is room.
func (e *Engine) park(t *text) {
	t.release()
	if t.judged() {
		t.r.prompt = nil // the whole prompt is read again
	}
	e.running = without(e.running, t)
	i := len(e.parked)
	for i > 0 && e.parked[i-1].order > t.order {
		i--
	}
	e.parked = slices.Insert(e.parked, i, t)
}

// preempt preempts the text that started last and returns it.
func (e *Engine) preempt() *text {
	last := e.running[len(e.running)-1]
	e.park(last)
	e.mu.Lock()
	e.stats.Preemptions++
	e.mu.Unlock()
	return last
}

// sweep drops requests whose readers have left.
func (e *Engine) sweep() {
	var gone []*request
	for _, t := range slices.Concat(e.running, e.parked) {
		if t.r.gone.Load() && !slices.Contains(gone, t.r) {
			gone = append(gone, t.r)
		}
	}
	e.mu.Lock()
	for _, f := range e.waiting.flows {
		for _, t := range f.waiting {
			if t.r.gone.Load() {
				gone = append(gone, t.r)
			}
		}
	}
	e.mu.Unlock()
	for _, r := range gone {
		e.drop(r, nil)
	}
}

// drop ends a request before its answers have ended.
func (e *Engine) drop(r *request, err error) {
	e.flush() // of this request too
	if err != nil && e.context.Err() != nil {
		err = ErrClosed // closing the engine interrupted the run
	}
	err = e.lost(err)
	ended := 0
	for _, list := range []*[]*text{&e.running, &e.parked} {
		*list = slices.DeleteFunc(*list, func(t *text) bool {
			if t.r != r {
				return false
			}
			t.release()
			ended++
			return true
		})
	}
	e.mu.Lock()
	e.waiting.drop(r)
	for range ended {
		e.waiting.ended(r.flow)
	}
	e.mu.Unlock()
	e.finish(r, err)
}

// over ends a text whose answer has ended. The last text ends its request.
func (e *Engine) over(t *text) {
	t.release()
	e.running = without(e.running, t)
	e.mu.Lock()
	e.waiting.ended(t.r.flow)
	e.mu.Unlock()
	if t.r.texts--; t.r.texts == 0 {
		t.r.releaseLease() // other adapters may need the memory before the end is delivered
		e.outbox = append(e.outbox, delivery{r: t.r, ends: true})
	}
}

// finish completes a request after its last resource is released.
func (e *Engine) finish(r *request, err error) {
	r.releaseLease()
	e.mu.Lock()
	e.setUnread(r, 0)
	e.answers -= len(r.Answers)
	if e.live--; e.live == 0 && e.empty != nil {
		close(e.empty)
		e.empty = nil
	}
	e.mu.Unlock()
	e.publish()
	r.out.end(err)
	close(r.over)
}

func without(texts []*text, t *text) []*text {
	return slices.DeleteFunc(texts, func(o *text) bool { return o == t })
}
