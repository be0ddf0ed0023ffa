package batching

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"sync"
	"sync/atomic"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/internal/generate"
	"github.com/lorafuse/lorafuse/internal/model"
	"github.com/lorafuse/lorafuse/internal/serve/pages"
	"github.com/lorafuse/lorafuse/internal/serve/share"
	"github.com/lorafuse/lorafuse/lora"
)

// Engine generates text with one model on one device. One goroutine runs it in steps; each step reads one token
// of every text in decoding, and chunks of prompts. Other requests do not change an answer: it
// equals that of a [generate.Generator] with the adapter alone, bit for bit on a batch-invariant
// device and up to rounding on others.
//
// An Engine is safe for concurrent use.
type Engine struct {
	options  Options
	model    *model.Model
	machine  *machine
	registry *lora.Registry
	users    *atomic.Int32 // engines that use the registry; the last one closes it
	device   int           // number in the registry
	name     string        // of the device, such as cuda:0
	pool     *pages.Pool
	gate     *share.Gate
	context  context.Context // of all runs
	cancel   context.CancelFunc
	wake     chan struct{}
	stopped  chan struct{}

	// The fields below belong to the engine's goroutine.
	running []*text // in the order in which they started
	parked  []*text // preempted texts, in the same order
	orders  uint64
	turn    int // of texts that are read alone
	steps   batch
	ahead   []piece    // planned for the next step
	outbox  []delivery // not yet delivered
	done    []Step     // not yet reported

	mu       sync.Mutex // guards the fields below
	waiting  queue
	numbers  uint64
	live     int           // accepted requests that have not ended
	unread   int           // tokens of their prompts that are still to be read
	answers  int           // of these requests
	empty    chan struct{} // closed when no request is left; nil if Drain does not wait
	draining bool
	failed   error // why no request is accepted, nil while requests are
	stats    Stats
}

// New uploads a model to a device and starts an engine. m and dev must stay open until the engine
// is closed. Errors: generate.ErrOption, generate.ErrTooLong, model.ErrTask if the model does not
// generate text, and errors of [lora.NewRegistry] and of the device.
func New(ctx context.Context, dev backend.Device, m *model.Model, o Options) (*Engine, error) {
	g, err := NewGroup(ctx, []backend.Device{dev}, m, o)
	if err != nil {
		return nil, err
	}
	return g.engines[0], nil
}

// newEngine uploads a model to device number i of a registry, which does not exist yet. open starts
// the engine.
func newEngine(ctx context.Context, dev backend.Device, i int, m *model.Model, o Options) (*Engine, error) {
	x, err := newMachine(ctx, dev, m, &o)
	if err != nil {
		return nil, fmt.Errorf("batching: %w", err)
	}
	e := &Engine{
		options: o, model: m, machine: x, device: i, name: dev.Info().String(), gate: share.New(o.TrainShare),
		wake: make(chan struct{}, 1), stopped: make(chan struct{}),
	}
	x.news = func() { wake(e.wake) }
	if e.pool, err = pages.New(pages.Options{Pages: o.pages(), Rows: o.PageRows}); err != nil {
		x.close()
		return nil, fmt.Errorf("batching: %w", err)
	}
	return e, nil
}

// open starts the engine, which has got its registry.
func (e *Engine) open() {
	e.context, e.cancel = context.WithCancel(context.Background())
	e.publish()
	if o := e.options.Adapters; o.Root != "" || o.Find != nil { // adapters are loaded by requests
		go func() { _ = e.machine.grow() }()
	}
	go e.loop()
}

// Adapters returns the registry. Requests name its adapters, which may be swapped and unloaded
// while requests run.
func (e *Engine) Adapters() *lora.Registry { return e.registry }

// MaxLength returns the maximum number of tokens of prompt and answer together.
func (e *Engine) MaxLength() int { return e.options.MaxLength }

// Submit runs a request as [Group.Submit] does.
func (e *Engine) Submit(ctx context.Context, r Request) iter.Seq2[Token, error] {
	return (&Group{engines: []*Engine{e}}).Submit(ctx, r)
}

// errLeft is the error of a request whose reader has left the loop.
var errLeft = errors.New("left")

// deliver yields the tokens of a request and waits until the request has ended.
func (e *Engine) deliver(ctx context.Context, q *request, yield func(Token, error) bool) (err error) {
	defer func() {
		q.gone.Store(true)
		wake(e.wake)
		<-q.over
		if errors.Is(err, errLeft) {
			err = nil
		}
	}()
	var tokens []Token
	for {
		if tokens, err = q.out.take(ctx, tokens); len(tokens) == 0 {
			return err
		}
		for _, t := range tokens {
			if !yield(t, nil) {
				return errLeft
			}
		}
	}
}

// push adds the text of a request to the queue. It returns false if the engine accepts none.
func (e *Engine) push(t *text) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.refused() != nil || e.waiting.count >= e.options.MaxQueue {
		return false
	}
	q := t.r
	q.number = e.numbers
	e.numbers++
	e.live++
	q.unread = len(q.Prompt)
	e.unread += q.unread
	e.answers += len(q.Answers)
	e.waiting.push(t)
	wake(e.wake)
	return true
}

// text returns the initial text of a request.
func (e *Engine) text(q *request) (*text, error) {
	if len(q.Answers) == 0 {
		return nil, errors.New("no answers are asked for, expected one or more")
	}
	t := &text{r: q}
	for i, o := range q.Answers {
		a, err := generate.NewAnswer(e.model.Config.VocabSize, e.model.Config.EOS, e.options.MaxLength-len(q.Prompt), q.Prompt, o)
		if err != nil {
			return nil, err
		}
		if i == 0 {
			t.answer = a
		} else {
			t.others = append(t.others, a)
		}
	}
	return t, nil
}

// roots returns the keys under which a request's pages are shared: of texts, and of texts that have
// the tables of all long texts. They contain the digest of the adapter, not its name. If the derived
// tables depend on the length of the prompt, the first key contains that too; tokens after the prompt
// use the tables for the length up to that token.
func (e *Engine) roots(q *request) (root, long pages.Root) {
	var digest []byte
	if q.lease != nil {
		d := q.lease.Version().Digest()
		digest = d[:]
	}
	key := func(length int) pages.Root { return pages.NewRoot(digest, fmt.Appendf(nil, "%d %s", length, q.Salt)) }
	length, until := 0, e.machine.until
	if until > 0 && len(q.Prompt) > until && !e.machine.rereads {
		length = len(q.Prompt)
	}
	return key(length), key(until + 1)
}

// refused returns the reason why no request is accepted any more, or nil. e.mu is held.
func (e *Engine) refused() error {
	if e.failed == nil && e.draining {
		return ErrClosed
	}
	return e.failed
}

// lost returns err or, if the device is lost, the error of all its requests. Requests are then
// refused, so that clients that repeat theirs get another device.
func (e *Engine) lost(err error) error {
	if !errors.Is(err, backend.ErrLost) && !errors.Is(err, backend.ErrClosed) {
		return err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.failed == nil {
		e.failed = fmt.Errorf("batching: device %s: %w", e.name, err)
	}
	return e.failed
}

// refuse refuses new requests.
func (e *Engine) refuse() {
	e.mu.Lock()
	e.draining = true
	e.mu.Unlock()
}

// Drain refuses new requests, and waits until the current ones have ended or ctx is done.
func (e *Engine) Drain(ctx context.Context) error {
	e.mu.Lock()
	e.draining = true
	if e.live == 0 {
		e.mu.Unlock()
		return nil
	}
	if e.empty == nil {
		e.empty = make(chan struct{})
	}
	empty := e.empty
	e.mu.Unlock()
	select {
	case <-empty:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Close ends all requests with ErrClosed and frees the device memory. Later calls of the registry
// fail.
func (e *Engine) Close() {
	e.stop()
	<-e.stopped
}

// stop tells the engine's goroutine to end.
func (e *Engine) stop() {
	e.mu.Lock()
	if e.failed == nil {
		e.failed = ErrClosed
	}
	e.draining = true
	e.mu.Unlock()
	e.cancel()
	wake(e.wake)
}
