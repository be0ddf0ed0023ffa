package batching

import (
	"runtime"
	"slices"
	"sync/atomic"
	"time"

	"github.com/lorafuse/lorafuse/internal/fork"
)

// said is a sampled token of a text, and the row of the results that it was sampled from.
type said struct {
	t     *text
	row   int
	whole bool // the logits of the row have been read, not only its candidates
	token Token
	err   error
}

// scored is a prompt token with a requested log-probability, and the logits at the token before it.
type scored struct {
	t      *text
	at     int // index in the prompt
	logits []float32
	err    error
}

// settle processes the results of a batch: it samples the next tokens and scores prompts, in parallel. It reads the
// logits of rows whose candidates do not determine the token. Texts that have ended leave the batch.
func (e *Engine) settle(m *mix, b *batch) error {
	results := &e.machine.results
	b.said, b.scored = b.said[:0], b.scored[:0]
	row := 0
	for _, p := range b.pieces {
		first := row
		row += p.rows
		if p.t.pages == nil { // its request was dropped
			continue
		}
		if p.t.judged() {
			b.scored = p.t.addPromptLogprobs(b.scored, p.from, slices.Collect(slices.Chunk(results.logits[first*results.vocab:row*results.vocab], results.vocab)))
		}
		ends, err := e.advance(p)
		if err != nil {
			e.drop(p.t.r, err)
			continue
		}
		_, whole := slices.BinarySearch(b.logits, row-1)
		for _, t := range ends {
			b.said = append(b.said, said{t: t, row: row - 1, whole: whole})
		}
	}
	undecided := make([]bool, len(b.said))
	parallel(len(b.said)+len(b.scored), func(i int) {
		if i < len(b.said) {
			undecided[i] = !b.said[i].sample(results)
		} else {
			b.scored[i-len(b.said)].score()
		}
	})
	if err := e.sampleWhole(m, b, undecided); err != nil {
		return err
	}
	for _, x := range b.scored {
		if x.err != nil && x.t.pages != nil {
			e.drop(x.t.r, x.err)
		}
	}
	for _, x := range b.said {
		switch {
		case x.t.pages == nil:
		case x.err != nil:
			e.drop(x.t.r, x.err)
		default:
			e.say(x.t, x.token)
		}
	}
	clear(b.said)
	clear(b.scored)
	clear(b.pieces)
	for len(e.running) > e.options.MaxTexts { // new answers to one prompt
		e.park(e.running[len(e.running)-1])
	}
	return nil
}

// sampleWhole samples the undecided tokens from all logits of their rows.
func (e *Engine) sampleWhole(m *mix, b *batch, undecided []bool) error {
	var list []*said
	var rows []int
	for i := range b.said {
		if undecided[i] {
			b.said[i].whole = true
			list, rows = append(list, &b.said[i]), append(rows, b.said[i].row)
		}
	}
	if len(list) == 0 {
		return nil
	}
	if err := e.machine.read(e.context, m, 0, rows); err != nil {
		return err
	}
	parallel(len(list), func(i int) { list[i].sample(&e.machine.results) })
	return nil
}

// sample samples the token. It returns false if that needs the logits of the row, which have not been read.
func (x *said) sample(r *results) (ok bool) {
	x.token, ok, x.err = x.t.next(r, x.row, x.whole)
	return ok
}

// parallel calls f with the numbers below n, on all processors.
func parallel(n int, f func(i int)) {
	var next atomic.Int64
	var workers fork.Group
	work := func() {
		for i := int(next.Add(1) - 1); i < n; i = int(next.Add(1) - 1) {
			f(i)
		}
	}
	for range min(n, runtime.GOMAXPROCS(0)) - 1 {
		workers.Go(work)
	}
	work()
	workers.Wait()
}

// advance updates a text after its chunk was read. It returns the texts whose next token can be
// sampled: all answers if the prompt is complete.
func (e *Engine) advance(p piece) ([]*text, error) {
	t, r := p.t, p.t.r
	end := p.from + p.n
	if end > t.read {
		e.mu.Lock()
		e.waiting.serve(r.flow, end-max(t.read, p.from))
		e.setUnread(r, max(0, len(r.Prompt)-end))
		e.mu.Unlock()
		t.read = end
	}
	if err := t.pages.Commit(end); err != nil {
		return nil, err
	}
	if end < len(t.tokens()) {
		return nil, nil
	}
	if r.first.IsZero() {
		r.first = time.Now()
	}
	ends := []*text{t}
	for i, a := range t.others {
		pages, err := t.pages.Fork()
		if err != nil {
			return nil, err
		}
		e.orders++
		f := &text{r: r, number: i + 1, answer: a, order: e.orders, pages: pages, began: t.began, read: t.read}
		e.enter(f)
		e.mu.Lock()
		e.waiting.started(r.flow)
		e.mu.Unlock()
		r.texts++
		ends = append(ends, f)
	}
	t.others = nil
	return ends, nil
}

// setUnread sets the number of tokens of a prompt that are still to be read. e.mu is held.
func (e *Engine) setUnread(r *request, n int) {
	e.unread += n - r.unread
	r.unread = n
}

// say records the next token of a text for delivery.
func (e *Engine) say(t *text, token Token) {
	r := t.r
	if r.PromptLogprobs && t.number == 0 && len(t.tokens()) == len(r.Prompt)+1 {
		token.Prompt = r.prompt
	}
	if token.Finish != "" {
		token.Times = Times{Cached: r.cached, Queued: r.begun.Sub(r.came), Prefill: r.first.Sub(r.begun), Decode: time.Since(r.first)}
	}
	e.outbox = append(e.outbox, delivery{r: r, token: token})
	if token.Finish != "" {
		e.over(t)
	}
}
