package batching

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"sync"
	"time"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/generate"
	"github.com/lorafuse/lorafuse/lora"
	"github.com/lorafuse/lorafuse/model"
	"github.com/lorafuse/lorafuse/serve/pages"
	"github.com/lorafuse/lorafuse/serve/share"
)

// Engine continues texts with one model. One goroutine runs it step by step: each is a
// run over one token of every text that goes on, and pieces of prompts. What else runs
// changes nothing of an answer: it is that of a [generate.Generator] with the adapter
// alone, to the bit on a device that is batch invariant, and else but for rounding.
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

	// What the goroutine alone has.
	running []*text // in the order in which they were begun
	parked  []*text // that were begun and lost their pages, in that order
	orders  uint64
	turn    int // of texts that are read alone
	steps   batch

	mu       sync.Mutex // held for what follows
	waiting  queue
	numbers  uint64
	live     int           // requests that were taken and are not over
	empty    chan struct{} // closed when there are none, nil where nobody waits for it
	draining bool
	failed   error // why no request is taken any more
	stats    Stats
}

// New brings a model to a device, and begins to wait for requests. m and dev must stay
// open until the engine is closed. Errors: generate.ErrOption, generate.ErrTooLong,
// model.ErrTask where the model continues no texts, those of [lora.NewRegistry] and of the
// device.
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
	o.Adapters.Slots = x
	if e.registry, err = lora.NewRegistry(m, m.Config.ModelType, m.Modules(), o.Adapters); err == nil {
		e.pool, err = pages.New(pages.Options{Pages: o.pages(), Rows: o.PageRows})
	}
	if err != nil {
		x.close()
		return nil, fmt.Errorf("batching: %w", err)
	}
	e.context, e.cancel = context.WithCancel(context.Background())
	e.publish()
	go e.loop()
	return e, nil
}

// Adapters is the registry, in which what requests name is loaded, and may be swapped
// and unloaded while they run.
func (e *Engine) Adapters() *lora.Registry { return e.registry }

// MaxLength is the number of tokens that prompt and answer may have together.
func (e *Engine) MaxLength() int { return e.options.MaxLength }

// Submit is what an engine does with a request: see [Engine.Submit].
type Submit func(ctx context.Context, r Request) iter.Seq2[Token, error]

// Submit gives the tokens of the answers to a request as they come, those of one answer in
// their order, and may be gone through once. It begins when it is gone through. An error
// comes last, without a token. Leaving the loop, or the end of ctx, ends the request: when
// the loop is over nothing of the request is in use any more, and its pages are free.
//
// Errors: ErrRequest with what is wrong, ErrQueue, ErrClosed, those of
// [lora.Registry.Acquire] and [lora.Lease.Upload] for the adapter, that of ctx, ErrPanic,
// those of decoders, samplers and the device.
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

// errLeft says that the reader has left the loop.
var errLeft = errors.New("left")

// deliver gives the tokens of a request, and waits until that is over.
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

// take checks a request and lets it wait for its turn.
func (e *Engine) take(ctx context.Context, r Request) (q *request, err error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	q = &request{Request: r, came: time.Now(), over: make(chan struct{}), out: newStream(), texts: 1}
	t, err := e.text(q)
	if err != nil {
		return nil, fmt.Errorf("batching: %w: %w", ErrRequest, err)
	}
	if err := e.open(); err != nil { // before files are read for it
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
	q.root = e.root(q)
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

// text is the text that a request begins with.
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

// root is what the pages of a request are found by: by the bytes of the adapter, not by
// its name. Where the prompt is read by tables for its own length, that is a part of it;
// what comes behind any prompt is read by those for the text up to that token.
func (e *Engine) root(q *request) pages.Root {
	var digest []byte
	if q.lease != nil {
		d := q.lease.Version().Digest()
		digest = d[:]
	}
	length := 0
	if until := e.machine.until; until > 0 && len(q.Prompt) > until {
		length = len(q.Prompt)
	}
	return pages.NewRoot(digest, fmt.Appendf(nil, "%d %s", length, q.Salt))
}

// open is admissible, for one who does not hold the lock.
func (e *Engine) open() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.admissible()
}

// admissible says why no request is taken now.
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

// Drain takes no more requests, and waits until those that there are have ended, or ctx
// has.
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

// Close ends all requests with ErrClosed, and frees the memory of the device. Calls of
// the registry fail from then on.
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
