package batching

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"sync"
	"time"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/internal/generate"
	"github.com/lorafuse/lorafuse/internal/model"
	"github.com/lorafuse/lorafuse/internal/serve/pages"
	"github.com/lorafuse/lorafuse/internal/serve/share"
	"github.com/lorafuse/lorafuse/lora"
)

// Engine generates text with one model. One goroutine runs it in steps; each step reads one token
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
	empty    chan struct{} // closed when no request is left; nil if Drain does not wait
	draining bool
	failed   error // why no request is accepted, nil while requests are
	stats    Stats
}

// New uploads a model to a device and starts an engine. m and dev must stay open until the engine
// is closed. Errors: generate.ErrOption, generate.ErrTooLong, model.ErrTask if the model does not
// generate text, and errors of [lora.NewRegistry] and of the device.
func New(ctx context.Context, dev backend.Device, m *model.Model, o Options) (*Engine, error) {
	if err := m.CheckTask(model.NextToken); err != nil {
		return nil, fmt.Errorf("batching: %w", err)
	}
	if err := o.complete(m); err != nil {
		return nil, err
	}
	x, err := newMachine(ctx, dev, m, &o)
	if err != nil {
		return nil, fmt.Errorf("batching: %w", err)
	}
	e := &Engine{options: o, model: m, machine: x, gate: share.New(o.TrainShare), wake: make(chan struct{}, 1), stopped: make(chan struct{})}
	x.news = func() { wake(e.wake) }
	o.Adapters.Slots, o.Adapters.Prepare = []lora.Slots{x}, x.prepare
	if e.registry, err = lora.NewRegistry(m, m.Config.ModelType, m.Modules(), o.Adapters); err == nil {
		e.pool, err = pages.New(pages.Options{Pages: o.pages(), Rows: o.PageRows})
	}
	if err != nil {
		x.close()
		return nil, fmt.Errorf("batching: %w", err)
	}
	e.context, e.cancel = context.WithCancel(context.Background())
	e.publish()
	if o.Adapters.Root != "" || o.Adapters.Find != nil { // adapters are loaded by requests
		go func() { _ = x.grow() }()
	}
	go e.loop()
	return e, nil
}

// Adapters returns the registry. Requests name its adapters, which may be swapped and unloaded
// while requests run.
func (e *Engine) Adapters() *lora.Registry { return e.registry }

// MaxLength returns the maximum number of tokens of prompt and answer together.
func (e *Engine) MaxLength() int { return e.options.MaxLength }

// Submit is the type of [Engine.Submit].
type Submit func(ctx context.Context, r Request) iter.Seq2[Token, error]

// Submit runs a request and returns an iterator over the tokens of its answers. Tokens of one
// answer are in order. The request starts with the iteration, which is possible only once. An error
// is the last element and has no token. Leaving the loop or canceling ctx ends the request. When
// the loop returns, all its resources and pages are free.
//
// Errors: ErrRequest with the cause, ErrQueue, ErrClosed, errors of [lora.Registry.Acquire] and
// [lora.Lease.Upload] for the adapter, the error of ctx, ErrPanic, and errors of decoders, samplers
// and the device.
func (e *Engine) Submit(ctx context.Context, r Request) iter.Seq2[Token, error] {
	return func(yield func(Token, error) bool) {
		q, err := e.take(ctx, r)
		if err != nil {
			yield(Token{}, err)
			return
		}
		err = e.deliver(ctx, q, yield)
		if err != nil {
			yield(Token{}, err)
		}
	}
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

// take checks a request and adds it to the queue.
func (e *Engine) take(ctx context.Context, r Request) (q *request, err error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	q = &request{Request: r, came: time.Now(), over: make(chan struct{}), out: newStream(), texts: 1}
	t, err := e.text(q)
	if err != nil {
		return nil, fmt.Errorf("batching: %w: %w", ErrRequest, err)
	}
	if err := e.open(); err != nil { // before adapter files are read for it
		return nil, err
	}
	switch {
	case r.Lease != nil:
		q.lease, err = r.Lease.Share()
	case r.Adapter != "":
		q.lease, err = e.registry.Acquire(ctx, r.Adapter)
	}
	if err != nil {
		if errors.Is(err, lora.ErrClosed) {
			err = ErrClosed
		}
		return nil, fmt.Errorf("batching: %w", err)
	}
	if q.lease != nil {
		q.flow.adapter = q.lease.Version().Digest()
	}
	q.flow.client = r.Client
	q.root, q.long = e.roots(q)
	e.mu.Lock()
	defer e.mu.Unlock()
	if err := e.admissible(); err != nil {
		if q.lease != nil {
			q.lease.Release()
		}
		return nil, err
	}
	q.number = e.numbers
	e.numbers++
	e.live++
	e.waiting.push(t)
	wake(e.wake)
	return q, nil
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

// open acquires the lock and calls admissible.
func (e *Engine) open() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.admissible()
}

// admissible returns the reason why no request is accepted now, or nil.
func (e *Engine) admissible() error {
	switch {
	case e.failed != nil:
		return e.failed
	case e.draining:
		return ErrClosed
	case e.waiting.count >= e.options.MaxQueue:
		return fmt.Errorf("batching: %w: %d, at most %d", ErrQueue, e.waiting.count, e.options.MaxQueue)
	}
	return nil
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
	e.mu.Lock()
	if e.failed == nil {
		e.failed = ErrClosed
	}
	e.draining = true
	e.mu.Unlock()
	e.cancel()
	wake(e.wake)
	<-e.stopped
}
