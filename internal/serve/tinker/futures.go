package tinker

import (
	"context"
	"encoding/json"
	"sync"
	"time"
)

// future is a call in progress, or its result.
type future struct {
	id     string
	tenant *tenant       // nil if it has no session
	owner  string        // name of the calling key
	done   chan struct{} // closed when answer is set
	answer answer
	ended  time.Time // when answer was set
	taken  time.Time // when it was last sent to a client; guarded by futures.mu
}

// answer is the result of a call: exactly one of the fields is set.
type answer struct {
	proto  []byte
	json   json.RawMessage
	failed *failed
}

// failed is the error of a call in the protocol's form.
type failed struct {
	Error    string `json:"error"`
	Category string `json:"category"`
}

// answered returns an answer in JSON.
func answered(v any) (answer, error) {
	raw, err := json.Marshal(v)
	return answer{json: raw}, err
}

// finish sets the answer and wakes the calls that wait for it. It must be called once.
func (f *future) finish(a answer) {
	f.answer, f.ended = a, time.Now()
	close(f.done)
}

// ready reports whether the answer is set.
func (f *future) ready() bool {
	select {
	case <-f.done:
		return true
	default:
		return false
	}
}

// futures holds the calls of all sessions by ID.
type futures struct {
	mu  sync.Mutex
	all map[string]*future
}

// begin returns the future of an id, and reports whether it was created by this call.
func (t *futures) begin(id string, s *tenant, owner string) (f *future, fresh bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if f = t.all[id]; f != nil {
		return f, false
	}
	if t.all == nil {
		t.all = map[string]*future{}
	}
	f = &future{id: id, tenant: s, owner: owner, done: make(chan struct{})}
	t.all[id] = f
	return f, true
}

// find returns the future of an id, or nil.
func (t *futures) find(id string) *future {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.all[id]
}

// forget removes a future that no client has received.
func (t *futures) forget(f *future) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.all, f.id)
}

// wait waits for the result of a future and marks it as fetched. It returns false if ctx is done or
// another channel is ready before the result.
func (t *futures) wait(ctx context.Context, f *future, timeout <-chan time.Time, stop <-chan struct{}) bool {
	select {
	case <-f.done:
	case <-ctx.Done():
		return false
	case <-timeout:
		return false
	case <-stop:
		if !f.ready() {
			return false
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	f.taken = time.Now()
	return true
}

// unfetched is the lifetime of an answer that no client fetches.
const unfetched = time.Hour

// sweep removes answers that were fetched longer than keep ago; until then a client may retry. It
// also removes answers that were not fetched in time, and all answers of sessions for which gone
// returns true.
func (t *futures) sweep(now time.Time, keep time.Duration, gone func(*tenant) bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for id, f := range t.all {
		switch {
		case !f.ready():
		case !f.taken.IsZero() && now.Sub(f.taken) > keep, f.taken.IsZero() && now.Sub(f.ended) > unfetched, gone(f.tenant):
			delete(t.all, id)
		}
	}
}
