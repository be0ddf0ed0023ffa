package batching

import (
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"slices"
	"time"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/internal/data"
	"github.com/lorafuse/lorafuse/internal/engine"
	"github.com/lorafuse/lorafuse/internal/nn"
	"github.com/lorafuse/lorafuse/internal/serve/pages"
)

// batch is the input of a step.
type batch struct {
	pieces   []piece
	length   int // text length of the derived tables
	given    data.Batch
	adapters []int32 // adapter of each token
	reads    []int32 // indices of tokens whose logits are read
	said     []said
	scored   []scored
}

// piece is the chunk of one text that a step reads.
type piece struct {
	t    *text
	from int
	n    int
	copy pages.Copy // to make before the run
	rows int        // logits to read
}

// loop runs the engine's goroutine.
func (e *Engine) loop() {
	defer close(e.stopped)
	debug.SetPanicOnFault(true) // an unreadable page of a mapped file ends only a step
	for e.wait() {
		e.gate.Begin()
		err := safely(e.step)
		e.gate.End(e.context)
		if err == nil {
			continue
		}
		e.dropAll(err) // waiting requests too, since they may be the cause
		if errors.Is(err, backend.ErrLost) || errors.Is(err, backend.ErrClosed) {
			e.mu.Lock()
			if e.failed == nil {
				e.failed = err
			}
			e.mu.Unlock()
		}
	}
	e.shut()
}

// wait waits for work. It returns false if the engine is closed or has failed.
func (e *Engine) wait() bool {
	for {
		e.mu.Lock()
		failed, waiting := e.failed, e.waiting.count
		e.mu.Unlock()
		if failed != nil {
			return false
		}
		if len(e.running)+len(e.parked)+waiting > 0 {
			return true
		}
		e.gate.Idle()
		e.machine.sweep()
		<-e.wake
	}
}

// shut ends all requests.
func (e *Engine) shut() {
	e.gate.Idle()
	e.mu.Lock()
	failed := e.failed
	e.mu.Unlock()
	e.dropAll(failed)
	e.registry.Close()
	e.machine.close()
	e.cancel()
}

// dropAll ends all requests.
func (e *Engine) dropAll(err error) {
	for _, list := range []*[]*text{&e.running, &e.parked} {
		for len(*list) > 0 {
			e.drop((*list)[0].r, err)
		}
	}
	e.mu.Lock()
	waiting := e.waiting.all()
	e.mu.Unlock()
	for _, t := range waiting {
		e.drop(t.r, err)
	}
}

// step runs one batch. It returns errors that end all requests: internal errors of the engine, and
// the loss of the device.
func (e *Engine) step() error {
	e.sweep()
	e.machine.sweep()
	e.admit()
	m := e.prepare()
	b := &e.steps
	if len(e.running) > 0 && !slices.ContainsFunc(e.running, e.runsWith(m)) {
		e.publish()
		e.gate.Idle()
		<-e.wake // a mix may be ready, or a request may have arrived
		return nil
	}
	e.compose(b, m)
	if len(b.pieces) == 0 {
		return nil
	}
	start := time.Now()
	var logits []float32
	err := safely(func() (err error) {
		logits, err = e.read(m, b)
		return err
	})
	if err != nil {
		for _, p := range b.pieces {
			if p.t.pages != nil { // not yet dropped with another answer
				e.drop(p.t.r, err)
			}
		}
		if errors.Is(err, backend.ErrLost) || errors.Is(err, backend.ErrClosed) {
			return err
		}
		return nil
	}
	s := Step{Texts: len(b.pieces), Took: time.Since(start)}
	for _, p := range b.pieces {
		s.Tokens += p.n
		if p.n > 1 || p.from < len(p.t.r.Prompt) {
			s.Prompt += p.n
		}
	}
	e.settle(b, logits)
	e.publish()
	if e.options.OnStep != nil {
		e.options.OnStep(s)
	}
	runtime.Gosched() // let readers of tokens run before all processors compute again
	return nil
}

// prepare returns the mix for the adapters of all running texts. While that is not ready, it
// returns one for some of them. Requests with an adapter that no program can be built for end.
func (e *Engine) prepare() *mix {
	for {
		var need []*engine.Slot
		for _, t := range e.running {
			if v := t.version(); v != nil {
				if s := e.machine.slotOf(v); !slices.Contains(need, s) {
					need = append(need, s)
				}
			}
		}
		var m *mix
		err := safely(func() (err error) {
			m, err = e.machine.mixOf(e.context, need)
			return err
		})
		if err == nil {
			return m
		}
		e.blame(err)
	}
}

// runsWith returns a function that reports whether a mix can read a text.
func (e *Engine) runsWith(m *mix) func(*text) bool {
	return func(t *text) bool {
		v := t.version()
		return v == nil || m.numberOf(e.machine.slotOf(v)) >= 0
	}
}

// blame ends the requests whose adapter fails on its own too. If there are none, it ends the
// request that started last.
func (e *Engine) blame(err error) {
	found := false
	for _, t := range slices.Clone(e.running) {
		v := t.version()
		if v == nil || t.pages == nil {
			continue
		}
		alone := safely(func() error { return e.machine.check(e.machine.slotOf(v)) })
		if alone != nil {
			found = true
			e.drop(t.r, alone)
		}
	}
	if !found {
		e.drop(e.running[len(e.running)-1].r, err)
	}
}

// compose schedules a step: one token of each text in decoding, then chunks of longer inputs.
// Chunks are ordered by the turns of their flows, so that a long prompt does not delay a short one.
// Texts that need derived tables of their own are read alone, in turns.
func (e *Engine) compose(b *batch, m *mix) {
	b.pieces, b.length = b.pieces[:0], 1
	var common, apart []*text
	can := e.runsWith(m)
	for _, t := range e.running {
		if !can(t) {
			continue
		}
		if _, length := t.stretch(e.machine.until); length > 0 {
			apart = append(apart, t)
		} else {
			common = append(common, t)
		}
	}
	if len(apart) > 0 {
		turns := len(apart) + min(1, len(common))
		e.turn = (e.turn + 1) % turns
		if e.turn < len(apart) {
			t := apart[e.turn]
			_, b.length = t.stretch(e.machine.until)
			e.add(b, t)
			return
		}
	}
	long := slices.DeleteFunc(slices.Clone(common), func(t *text) bool { return t.left() == 1 })
	e.mu.Lock()
	e.waiting.sort(long)
	e.mu.Unlock()
	for _, t := range common {
		if !slices.Contains(long, t) && t.pages != nil { // it may have been preempted
			e.add(b, t)
		}
	}
	for _, t := range long {
		if t.pages == nil {
			continue
		}
		if e.follow(t); !e.reads(b, t) {
			e.add(b, t)
		}
	}
}

// follow shares with a text the pages that other texts with the same prefix have read since it
// started.
func (e *Engine) follow(t *text) {
	known, had := t.known(), t.pages.Len()
	if len(known)-had < e.options.PageRows {
		return
	}
	if found, _ := e.pool.Find(t.r.root, known); found*e.options.PageRows <= had {
		return
	}
	t.release()
	t.pages = e.pool.Begin(t.r.root, known)
	if t.read <= had { // and these tokens are read for the first time
		t.r.cached += t.pages.Len() - had
	}
}

// reads reports whether the next page of a text is already being read in this batch for another
// text with the same prefix. The text then waits for that page.
func (e *Engine) reads(b *batch, t *text) bool {
	known := t.known()
	end := (t.pages.Len()/e.options.PageRows + 1) * e.options.PageRows
	return end <= len(known) && slices.ContainsFunc(b.pieces, func(p piece) bool {
		return p.t.r.root == t.r.root && p.from < end && end <= p.from+p.n && slices.Equal(p.t.tokens()[:end], known[:end])
	})
}

// add adds a chunk of a text to a batch if there is room. It allocates the pages, preempting the
// texts that started last if none are free.
func (e *Engine) add(b *batch, t *text) {
	n, _ := t.stretch(e.machine.until)
	tokens, rows, tables := e.options.MaxBatchTokens, e.options.rows(), e.options.tables()
	for _, p := range b.pieces {
		tokens, rows, tables = tokens-p.n, rows-p.rows, tables-len(p.t.pages.Pages())
	}
	n = min(n, tokens)
	if t.judged() {
		n = min(n, rows)
	}
	from := t.pages.Len()
	if n < 1 || rows < 1 || e.options.pagesOf(from+n) > tables {
		return
	}
	p := piece{t: t, from: from, n: n}
	switch {
	case t.judged():
		p.rows = n
	case n == t.left():
		p.rows = 1
	}
	for {
		var err error
		if p.copy, err = t.pages.Append(t.tokens()[from : from+n]...); err == nil {
			b.pieces = append(b.pieces, p)
			return
		}
		if !errors.Is(err, pages.ErrFull) || len(e.running) == 1 {
			e.drop(t.r, err)
			b.pieces = slices.DeleteFunc(b.pieces, func(p piece) bool { return p.t.pages == nil })
			return
		}
		last := e.preempt()
		b.pieces = slices.DeleteFunc(b.pieces, func(p piece) bool { return p.t == last })
		if last == t {
			return
		}
	}
}

// read runs a batch and returns the requested logits.
func (e *Engine) read(m *mix, b *batch) ([]float32, error) {
	b.given.Reset()
	b.adapters, b.reads = b.adapters[:0], b.reads[:0]
	for _, p := range b.pieces {
		if c := p.copy; c.Rows > 0 {
			if err := e.machine.cache.CopyRows(e.context, c.From, c.To, c.Rows); err != nil {
				return nil, err
			}
		}
		number := int32(-1)
		if v := p.t.version(); v != nil {
			if number = int32(m.numberOf(e.machine.slotOf(v))); number < 0 {
				return nil, fmt.Errorf("batching: version %s of an adapter has no position in the program", v.Digest().Short())
			}
		}
		b.given.AddPiece(p.t.tokens()[p.from:p.from+p.n], p.from, p.t.pages.Pages(), e.options.PageRows)
		for range p.n {
			b.adapters = append(b.adapters, number)
		}
		for i := len(b.adapters) - p.rows; i < len(b.adapters); i++ {
			b.reads = append(b.reads, int32(i))
		}
	}
	rows := len(b.reads)
	if rows == 0 {
		b.reads = append(b.reads, 0) // an axis has at least one row
	}
	if e.machine.pads {
		b.pad(e.machine.bounds)
	}
	b.given.SetInts(nn.Adapters, b.adapters)
	b.given.SetInts(readInput, b.reads)
	return e.machine.run(e.context, m, &b.given, b.length, rows)
}
