package batching

// This file has the host's work while the device runs a step.

// delivery is a token for the reader of a request, or the end of the request.
type delivery struct {
	r     *request
	token Token
	ends  bool
}

// flush passes the tokens that were sampled since the last call to their readers, ends the requests whose answers have
// ended, and reports the steps.
func (e *Engine) flush() {
	if len(e.outbox)+len(e.done) == 0 {
		return
	}
	for _, d := range e.outbox {
		if d.ends {
			e.finish(d.r, nil)
		} else {
			d.r.out.put(d.token)
		}
	}
	clear(e.outbox)
	e.outbox = e.outbox[:0]
	e.publish()
	done := e.done
	e.done = nil
	if e.options.OnStep != nil {
		for _, s := range done {
			e.options.OnStep(s)
		}
	}
}

// planAhead plans the step after b, while the device runs b: it drops and admits requests, chooses the chunks, and
// allocates their pages. It assumes that the texts in decoding go on; compose leaves out
// texts that have ended by then, and adds texts that planAhead skips: they need the pages of others, or depend on the
// results of b.
func (e *Engine) planAhead(b *batch, m *mix) {
	e.sweep()
	e.admit()
	if e.machine.until > 0 { // texts may be read alone
		return
	}
	tokens, rows, tables := e.options.MaxBatchTokens, e.options.rows(), e.options.tables()
	plan := func(t *text, n, left int) {
		n = min(n, tokens)
		need := e.options.pagesOf(t.pages.Len() + n)
		if n < 1 || rows < 1 || need > tables || !t.pages.Reserve(n) {
			return
		}
		tokens, tables = tokens-n, tables-need
		if n == left {
			rows--
		}
		e.ahead = append(e.ahead, piece{t: t, from: t.pages.Len(), n: n})
	}
	can := e.runsWith(m)
	var long []*text
	for _, t := range e.running {
		switch {
		case !can(t), t.judged(), len(t.others) > 0:
		case t.left() > 1:
			long = append(long, t)
		default: // the token is known, or b determines it
			plan(t, 1, 1)
		}
	}
	e.mu.Lock()
	e.waiting.sort(long)
	e.mu.Unlock()
	for _, t := range long {
		if !b.has(t) {
			e.follow(t)
		}
		if !e.reads(b.pieces, t) && !e.reads(e.ahead, t) {
			plan(t, t.left(), t.left())
		}
	}
}
