package batching

import (
	"runtime"
	"slices"
	"sync/atomic"
	"time"

	"github.com/lorafuse/lorafuse/internal/fork"
)

// said is a sampled token of a text, with the logits that it was sampled from.
type said struct {
	t      *text
	logits []float32
	token  Token
	err    error
}

// scored is a prompt token with a requested log-probability, and the logits at the token before it.
type scored struct {
	t      *text
	at     int // index in the prompt
	logits []float32
	err    error
}

// settle processes the logits of a batch and delivers the next tokens. Sampling tokens and scoring
// prompts run in parallel.
func (e *Engine) settle(b *batch, logits []float32) {
	vocab := e.model.Config.VocabSize
	b.said, b.scored = b.said[:0], b.scored[:0]
	for _, p := range b.pieces {
		mine := slices.Collect(slices.Chunk(logits[:p.rows*vocab], vocab))
		logits = logits[p.rows*vocab:]
		if p.t.pages == nil { // its request was dropped
			continue
		}
		if p.t.judged() {
			b.scored = p.t.addPromptLogprobs(b.scored, p.from, mine)
		}
		ends, err := e.advance(p)
		if err != nil {
			e.drop(p.t.r, err)
			continue
		}
		for _, t := range ends {
			b.said = append(b.said, said{t: t, logits: mine[len(mine)-1]})
		}
	}
	var next atomic.Int64
	var workers fork.Group
	work := func() {
		for i := int(next.Add(1) - 1); i < len(b.said)+len(b.scored); i = int(next.Add(1) - 1) {
			if i < len(b.said) {
				x := &b.said[i]
				x.token, x.err = x.t.next(x.logits)
			} else {
				b.scored[i-len(b.said)].score()
			}
		}
	}
	for range min(len(b.said)+len(b.scored), runtime.GOMAXPROCS(0)) - 1 {
		workers.Go(work)
	}
	work()
	workers.Wait()
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
}

// advance updates a text after its chunk was read. It returns the texts whose next token can be
// sampled: all answers if the prompt is complete.
func (e *Engine) advance(p piece) ([]*text, error) {
	t, r := p.t, p.t.r
	end := p.from + p.n
	if end > t.read {
		e.mu.Lock()
		e.waiting.serve(r.flow, end-max(t.read, p.from))
		e.mu.Unlock()
		t.read = end
	}
	if err := t.pages.Commit(t.pages.Len()); err != nil {
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
		f := &text{r: r, number: i + 1, answer: a, order: e.orders, pages: pages, read: t.read}
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

// say emits the next token of a text.
func (e *Engine) say(t *text, token Token) {
	r := t.r
	if r.PromptLogprobs && t.number == 0 && len(t.tokens()) == len(r.Prompt)+1 {
		token.Prompt = r.prompt
	}
	if token.Finish != "" {
		token.Times = Times{Cached: r.cached, Queued: r.begun.Sub(r.came), Prefill: r.first.Sub(r.begun), Decode: time.Since(r.first)}
	}
	r.out.put(token)
	if token.Finish != "" {
		e.over(t)
	}
}
