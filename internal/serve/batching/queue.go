package batching

import (
	"cmp"
	"slices"

	"github.com/lorafuse/lorafuse/lora"
)

// queue holds the waiting requests and orders them by flow (adapter and client). Each flow counts
// the tokens read for it; the flow with the lowest counter is next (virtual token counters, Sheng
// et al. 2024, arXiv 2401.00588). A flow that was idle starts at the lowest counter of the others,
// so it gains nothing by having been idle.
//
// While a request waits, only earlier requests of its flow are answered, and each other flow is
// served until it reaches the counter of this flow, plus one request. This bounds the wait
// regardless of the other requests.
type queue struct {
	flows map[flowKey]*flow
	count int
}

// flowKey identifies a flow.
type flowKey struct {
	adapter lora.Digest
	client  string
}

// flow holds the requests of one client for one adapter.
type flow struct {
	key     flowKey
	served  int64   // tokens read
	waiting []*text // oldest first
	running int     // running texts
}

// flow returns the flow of a key and marks it busy.
func (q *queue) flow(k flowKey) *flow {
	if q.flows == nil {
		q.flows = map[flowKey]*flow{}
	}
	f := q.flows[k]
	if f == nil {
		f = &flow{key: k}
		q.flows[k] = f
	}
	if !f.busy() {
		if least, ok := q.least(); ok {
			f.served = max(f.served, least)
		}
	}
	return f
}

// busy reports whether the flow has waiting or running texts.
func (f *flow) busy() bool { return len(f.waiting) > 0 || f.running > 0 }

// least returns the lowest counter of the busy flows.
func (q *queue) least() (n int64, ok bool) {
	for _, f := range q.flows {
		if f.busy() && (!ok || f.served < n) {
			n, ok = f.served, true
		}
	}
	return n, ok
}

// serves reports whether texts with an adapter wait or run.
func (q *queue) serves(adapter lora.Digest) bool {
	for k, f := range q.flows {
		if k.adapter == adapter && f.busy() {
			return true
		}
	}
	return false
}

// push appends a text to its flow.
func (q *queue) push(t *text) {
	f := q.flow(t.r.flow)
	f.waiting = append(f.waiting, t)
	q.count++
}

// heads returns the first text of each flow, in the order of their turns.
func (q *queue) heads() []*text {
	var flows []*flow
	for _, f := range q.flows {
		if len(f.waiting) > 0 {
			flows = append(flows, f)
		}
	}
	slices.SortFunc(flows, func(a, b *flow) int {
		return cmp.Or(cmp.Compare(a.served, b.served), cmp.Compare(a.waiting[0].r.number, b.waiting[0].r.number))
	})
	heads := make([]*text, len(flows))
	for i, f := range flows {
		heads[i] = f.waiting[0]
	}
	return heads
}

// sort sorts running texts by the turns of their flows. Texts of one flow keep their order.
func (q *queue) sort(texts []*text) {
	slices.SortStableFunc(texts, func(a, b *text) int {
		return cmp.Compare(q.flows[a.r.flow].served, q.flows[b.r.flow].served)
	})
}

// remove removes a waiting text.
func (q *queue) remove(t *text) {
	f := q.flows[t.r.flow]
	f.waiting = slices.DeleteFunc(f.waiting, func(o *text) bool { return o == t })
	q.count--
}

// drop removes the text of a request if it waits.
func (q *queue) drop(r *request) {
	if f := q.flows[r.flow]; f != nil {
		if i := slices.IndexFunc(f.waiting, func(t *text) bool { return t.r == r }); i >= 0 {
			q.remove(f.waiting[i])
			q.forget()
		}
	}
}

// all returns the waiting texts.
func (q *queue) all() (all []*text) {
	for _, f := range q.flows {
		all = append(all, f.waiting...)
	}
	return all
}

// started and ended count the running texts of a flow.
func (q *queue) started(k flowKey) { q.flow(k).running++ }

func (q *queue) ended(k flowKey) {
	q.flow(k).running--
	q.forget()
}

// serve adds tokens read for a flow.
func (q *queue) serve(k flowKey, tokens int) { q.flow(k).served += int64(tokens) }

// forget removes idle flows whose counter would be the same if they started again.
func (q *queue) forget() {
	least, any := q.least()
	for k, f := range q.flows {
		if !f.busy() && (!any || f.served <= least) {
			delete(q.flows, k)
		}
	}
}
