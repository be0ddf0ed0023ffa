package batching

import "cmp"

// This file assigns requests to engines.

// candidate is an engine as a request sees it.
type candidate struct {
	score    int  // tokens to read before the first token of the answer
	holds    bool // the adapter of the request
	resident int  // adapters on the device
}

// before reports whether c is the better choice, apart from the adapter.
func (c candidate) before(o candidate) bool {
	return cmp.Or(cmp.Compare(c.score, o.score), cmp.Compare(c.resident, o.resident)) < 0
}

// pick returns the index of the best candidate: one that holds the adapter or, if that is much busier
// than another one, the least busy. step is the number of tokens of a full step.
func pick(all []candidate, step int) int {
	least, holder := 0, -1
	for i, c := range all {
		if c.before(all[least]) {
			least = i
		}
		if c.holds && (holder < 0 || c.before(all[holder])) {
			holder = i
		}
	}
	if holder >= 0 && all[holder].score <= 2*all[least].score+4*step {
		return holder
	}
	return least
}

// choose returns the engine for a new text.
func choose(engines []*Engine, t *text) *Engine {
	if len(engines) == 1 {
		return engines[0]
	}
	all := make([]candidate, len(engines))
	for i, e := range engines {
		all[i] = e.candidate(t)
	}
	return engines[pick(all, engines[0].options.MaxBatchTokens)]
}

// candidate describes the engine for a new text. It holds the adapter if the adapter is on the device,
// or will be for another request.
func (e *Engine) candidate(t *text) candidate {
	c := candidate{score: len(t.tokens()) - e.pool.Cached(t.root(e.machine), t.known())}
	v := t.version()
	e.machine.mu.Lock()
	c.resident = len(e.machine.slots)
	e.machine.mu.Unlock()
	e.mu.Lock()
	defer e.mu.Unlock()
	c.score += e.queued()
	c.holds = v != nil && (v.On(e.device) || e.waiting.serves(v.Digest()))
	return c
}

// queued returns the number of tokens that a new request waits for: the unread ones of prompts, one
// for each answer, and a full step for each answer beyond MaxTexts, which starts when another has
// ended. e.mu is held.
func (e *Engine) queued() int {
	return e.unread + e.answers + max(0, e.answers-e.options.MaxTexts)*e.options.MaxBatchTokens
}
