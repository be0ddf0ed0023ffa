package serve

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"sync"

	"github.com/lorafuse/lorafuse/internal/serve/keys"
	"github.com/lorafuse/lorafuse/internal/serve/web"
)

// maxResponses is the maximum number of stored responses.
const maxResponses = 10_000

// responseStore keeps responses in memory, with their items. Each belongs to the owner of the key
// that created it. If they need more than limit bytes, the owner with the most bytes loses those
// that were not used for the longest time.
type responseStore struct {
	limit int64 // nothing is stored below 1

	mu      sync.Mutex
	records map[string]*storedResponse
	items   map[string]*storedResponse // by item ID; the latest if clients repeat an ID
	bytes   map[string]int64           // by owner
	total   int64
	uses    int64
}

// storedResponse is a stored response. Its store's mutex guards all fields but done.
type storedResponse struct {
	id, owner, previous string
	body                json.RawMessage // the response object
	status              string
	input, output       []item
	size                int64
	used                int64 // number of the latest use

	cancel context.CancelCauseFunc // nil after the end
	done   chan struct{}           // closed at the end
}

// errNotStored is the error for a response that is too large to be stored.
var errNotStored = errors.New("too large to be stored")

// errCancelled is the cause of a response that a client has cancelled.
var errCancelled = errors.New("the response was cancelled")

// begin stores a response in progress.
func (k *responseStore) begin(owner string, r *response, input []item, cancel context.CancelCauseFunc) (*storedResponse, error) {
	x := &storedResponse{id: r.ID, owner: owner, previous: of(r.Previous, ""), input: input, cancel: cancel, done: make(chan struct{})}
	if err := x.set(r); err != nil {
		return nil, err
	}
	if x.size > k.limit {
		return nil, errNotStored
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.records == nil {
		k.records, k.items, k.bytes = map[string]*storedResponse{}, map[string]*storedResponse{}, map[string]int64{}
	}
	k.records[x.id] = x
	k.count(x, x.size)
	k.touch(x)
	k.evict()
	return x, nil
}

// set records the state of the response.
func (x *storedResponse) set(r *response) (err error) {
	if x.body, err = web.Marshal(r); err != nil {
		return err
	}
	input, err := web.Marshal(x.input)
	x.output, x.status = slices.Clone(r.Output), r.Status
	x.size = int64(2*len(x.body) + 2*len(input)) // as text and as items
	return err
}

// end stores the final state of a response. With a nil r it removes the response.
func (k *responseStore) end(x *storedResponse, r *response) error {
	defer close(x.done)
	k.mu.Lock()
	defer k.mu.Unlock()
	x.cancel = nil
	if k.records[x.id] != x {
		return nil // deleted
	}
	if r == nil {
		k.remove(x)
		return nil
	}
	before := x.size
	if err := x.set(r); err != nil {
		k.remove(x)
		return err
	}
	k.count(x, x.size-before)
	for _, list := range [][]item{x.input, x.output} {
		for _, i := range list {
			k.items[i.ID] = x
		}
	}
	k.touch(x)
	k.evict()
	return nil
}

func (k *responseStore) count(x *storedResponse, n int64) {
	k.bytes[x.owner] += n
	k.total += n
}

func (k *responseStore) touch(x *storedResponse) {
	k.uses++
	x.used = k.uses
}

// remove removes a response and its items.
func (k *responseStore) remove(x *storedResponse) {
	delete(k.records, x.id)
	for _, list := range [][]item{x.input, x.output} {
		for _, i := range list {
			if k.items[i.ID] == x {
				delete(k.items, i.ID)
			}
		}
	}
	if k.count(x, -x.size); k.bytes[x.owner] == 0 {
		delete(k.bytes, x.owner)
	}
}

// evict removes ended responses until the rest are within the limits.
func (k *responseStore) evict() {
	for k.total > k.limit || len(k.records) > maxResponses {
		var oldest *storedResponse
		for _, x := range k.records {
			if x.cancel != nil {
				continue
			}
			if oldest == nil || k.bytes[x.owner] > k.bytes[oldest.owner] || k.bytes[x.owner] == k.bytes[oldest.owner] && x.used < oldest.used {
				oldest = x
			}
		}
		if oldest == nil {
			return
		}
		k.remove(oldest)
	}
}

// find returns a stored response that a client may see.
func (k *responseStore) find(who keys.Client, param, id string) (*storedResponse, error) {
	x := k.records[id]
	if x == nil || !who.Sees(x.owner) {
		const message = "there is no stored response %.100q; it may have been removed to make room"
		f := web.Invalid("", message, id)
		if param != "" {
			f = web.Faulty(param, message, id)
		}
		f.Status, f.Code = http.StatusNotFound, "response_not_found"
		return nil, f
	}
	k.touch(x)
	return x, nil
}

// get returns the state of a response.
func (k *responseStore) get(who keys.Client, id string) (json.RawMessage, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	x, err := k.find(who, "", id)
	if err != nil {
		return nil, err
	}
	return x.body, nil
}

// inputs returns the input items of a response, after those of the responses before it, without the
// output of the response itself.
func (k *responseStore) inputs(who keys.Client, id string) ([]item, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	x, err := k.find(who, "", id)
	if err != nil {
		return nil, err
	}
	before, err := k.chain(who, x.previous, maxResponses)
	if err != nil {
		return x.input, nil // the earlier ones have been removed
	}
	return append(before, x.input...), nil
}

// history returns the items of a response and of the responses before it. They may have most items.
func (k *responseStore) history(who keys.Client, id string, most int) ([]item, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.chain(who, id, most)
}

func (k *responseStore) chain(who keys.Client, id string, most int) ([]item, error) {
	const param = "previous_response_id"
	var all [][]item
	for n := 0; id != ""; {
		x, err := k.find(who, param, id)
		if err != nil {
			return nil, err
		}
		if x.cancel != nil {
			return nil, web.Faulty(param, "the response %q is still in progress", id)
		}
		if n += len(x.input) + len(x.output); n > most {
			f := web.Faulty(param, "the conversation has more than %d items; prompt and answer can have as many tokens together", most)
			f.Code = tooLong
			return nil, f
		}
		all = append(all, x.output, x.input)
		id = x.previous
	}
	slices.Reverse(all)
	return slices.Concat(all...), nil
}

// item returns an item of a stored response that a client may see.
func (k *responseStore) item(who keys.Client, id string) (item, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	x := k.items[id]
	if x == nil || !who.Sees(x.owner) {
		return item{}, false
	}
	k.touch(x)
	for _, list := range [][]item{x.output, x.input} {
		for _, i := range list {
			if i.ID == id {
				return i, true
			}
		}
	}
	return item{}, false
}

// delete removes a response. One in progress continues.
func (k *responseStore) delete(who keys.Client, id string) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	x, err := k.find(who, "", id)
	if err == nil {
		k.remove(x)
	}
	return err
}

// cancel ends a response in progress and returns its final state.
func (k *responseStore) cancel(ctx context.Context, who keys.Client, id string) (json.RawMessage, error) {
	k.mu.Lock()
	x, err := k.find(who, "", id)
	switch {
	case err != nil:
	case x.cancel != nil:
		x.cancel(errCancelled)
	case x.status != cancelled:
		err = web.Invalid("", "the response %q is %s already", id, x.status)
	}
	k.mu.Unlock()
	if err != nil {
		return nil, err
	}
	select {
	case <-x.done:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	return x.body, nil
}

// newItemID returns a random ID with a prefix.
func newItemID(prefix string) string {
	var b [24]byte
	rand.Read(b[:])
	return prefix + "_" + hex.EncodeToString(b[:])
}
