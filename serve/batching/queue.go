package batching

import (
	"cmp"
	"slices"

	"github.com/lorafuse/lorafuse/lora"
)

// queue is the requests that wait. They have turns by flow: adapter and client. Each
// flow has a counter of the tokens that were read for it, and the one that has had the
// least comes first (virtual token counters, Sheng et al. 2024, arXiv 2401.00588). A
// flow that had nothing to do begins where the least of the others is: it gains nothing
// by the time in which it has asked for nothing.
//
// While a request waits, those of its flow that came before are answered, and of each
// other flow as many tokens are read as it takes to reach its counter, and one request
// more: that bounds its wait, whatever others ask for.
type queue struct {
	flows map[flowKey]*flow
	count int
}

// flowKey tells flows apart.
type flowKey struct {
	adapter lora.Digest
	client  string
}

// flow is what one client wants of one adapter.
type flow struct {
	key     flowKey
	served  int64   // tokens
	waiting []*text // the first came first
	running int     // texts that do not wait
}

// flow gives the flow of a key, and makes it busy.
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

// busy reports whether the flow has something to do.
func (f *flow) busy() bool { return len(f.waiting) > 0 || f.running > 0 }

// least is the counter of the busy flow that has had the least.
func (q *queue) least() (n int64, ok bool) {
	for _, f := range q.flows {
		if f.busy() && (!ok || f.served < n) {
			n, ok = f.served, true
		}
	}
	return n, ok
}

// push puts a text behind those of its flow.
func (q *queue) push(t *text) {
	f := q.flow(t.r.flow)
	f.waiting = append(f.waiting, t)
	q.count++
}

// heads are the first texts of all flows, in the order of their turns.
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

// sort puts texts that run into the order of the turns of their flows, those of one flow
// as they are.
func (q *queue) sort(texts []*text) {
	slices.SortStableFunc(texts, func(a, b *text) int {
		return cmp.Compare(q.flows[a.r.flow].served, q.flows[b.r.flow].served)
	})
}

// remove takes a text out that waits.
func (q *queue) remove(t *text) {
	f := q.flows[t.r.flow]
	f.waiting = slices.DeleteFunc(f.waiting, func(o *text) bool { return o == t })
	q.count--
}

// drop takes the text of a request out, if it waits.
func (q *queue) drop(r *request) {
	if f := q.flows[r.flow]; f != nil {
		if i := slices.IndexFunc(f.waiting, func(t *text) bool { return t.r == r }); i >= 0 {
			q.remove(f.waiting[i])
			q.forget()
		}
	}
}

// all are those that wait.
func (q *queue) all() (all []*text) {
	for _, f := range q.flows {
		all = append(all, f.waiting...)
	}
	return all
}

// started and ended count the texts of a flow that run.
func (q *queue) started(k flowKey) { q.flow(k).running++ }

func (q *queue) ended(k flowKey) {
	q.flow(k).running--
	q.forget()
}

// serve counts tokens that were read for a flow.
func (q *queue) serve(k flowKey, tokens int) { q.flow(k).served += int64(tokens) }

// forget drops the flows that have nothing to do and would begin anew with as much.
func (q *queue) forget() {
	least, any := q.least()
	for k, f := range q.flows {
		if !f.busy() && (!any || f.served <= least) {
			delete(q.flows, k)
		}
	}
}
