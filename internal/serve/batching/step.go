package batching

import (
	"errors"
	"fmt"
	"math"
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
	reads    []int32 // indices of tokens whose logits are computed: the rows of the results
	logits   []int   // rows whose logits the host reads
	// temperatures of the rows, for their candidates
	temperatures []float32
	said         []said
	scored       []scored
}

// piece is the chunk of one text that a step reads.
type piece struct {
	t    *text
	from int
	n    int
	copy pages.Copy // to make before the run
	rows int        // logits to compute
}

// samples reports whether a token is sampled after the chunk.
func (p piece) samples() bool { return p.rows > 0 && p.from+p.n == len(p.t.tokens()) }

// loop runs the engine's goroutine.
func (e *Engine) loop() {
	defer close(e.stopped)
	debug.SetPanicOnFault(true) // an unreadable page of a mapped file ends only a step
	for e.wait() {
		e.gate.Begin()
		err := safely(e.step)
		if e.gate.Wanted() {
			e.flush() // now, since training may come next
		}
		e.gate.End(e.context)
		if err != nil {
			e.dropAll(e.lost(err)) // waiting requests too, since they may be the cause
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
		e.flush()
		e.gate.Idle()
		e.machine.sweep()
		<-e.wake
	}
}

// shut ends all requests.
func (e *Engine) shut() {
	e.flush()
	e.gate.Idle()
	e.mu.Lock()
	failed := e.failed
	e.mu.Unlock()
	e.dropAll(failed)
	e.registry.CloseDevice(e.device)
	if e.users.Add(-1) == 0 {
		e.registry.Close()
	}
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

// step runs one batch. While another device than the host runs it, the host delivers the tokens of the step before and
// plans the next step. Sampling waits for the device: the tokens are inputs of the next step. step returns errors that
// end all requests: internal errors of the engine, and the loss of the device.
func (e *Engine) step() error {
	e.sweep()
	e.machine.sweep()
	e.admit()
	m := e.prepare()
	b := &e.steps
	if len(e.running) > 0 && !slices.ContainsFunc(e.running, e.runsWith(m)) {
		e.publish()
		e.flush()
		e.gate.Idle()
		<-e.wake // a mix may be ready, or a request may have arrived
		return nil
	}
	e.compose(b, m)
	if len(b.pieces) == 0 {
		e.flush()
		return nil
	}
	start := time.Now()
	s := b.describe()
	err := safely(func() error {
		rows, err := e.launch(m, b)
		if err != nil {
			return err
		}
		if e.machine.overlaps {
			e.flush()
			e.planAhead(b, m)
		}
		if err := e.machine.read(e.context, m, rows, b.logits); err != nil {
			return err
		}
		s.Took = time.Since(start)
		return e.settle(m, b)
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
	e.done = append(e.done, s)
	if !e.machine.overlaps {
		e.flush()
		runtime.Gosched() // let readers of tokens run before all processors compute again
	}
	return nil
}

// describe returns the counts of a step.
func (b *batch) describe() Step {
	s := Step{Texts: len(b.pieces)}
	for _, p := range b.pieces {
		s.Tokens += p.n
		if p.n > 1 || p.from < len(p.t.r.Prompt) {
			s.Prompt += p.n
		}
	}
	return s
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
// Texts that need derived tables of their own are read alone, in turns, and long texts that share tables together.
// Chunks that were planned during the step before come first.
func (e *Engine) compose(b *batch, m *mix) {
	b.pieces, b.length = b.pieces[:0], 1
	var common, apart []*text
	can := e.runsWith(m)
	for _, t := range e.running {
		if !can(t) {
			continue
		}
		if t.began != t.root(e.machine) { // it has become a long text
			t.release()
			e.begin(t)
		}
		if _, length := t.stretch(e.machine); length > 0 {
			apart = append(apart, t)
		} else {
			common = append(common, t)
		}
	}
	if len(apart) > 0 {
		groups := len(apart)
		if e.machine.rereads {
			groups = 1
		}
		e.turn = (e.turn + 1) % (groups + min(1, len(common)))
		switch {
		case e.turn >= groups:
		case e.machine.rereads:
			common, b.length = apart, e.machine.until+1
		default:
			t := apart[e.turn]
			_, b.length = t.stretch(e.machine)
			e.add(b, t, math.MaxInt)
			return
		}
	}
	for _, p := range e.ahead {
		if slices.Contains(common, p.t) && p.t.pages != nil { // it may have ended or been preempted
			e.add(b, p.t, p.n)
		}
	}
	e.ahead = e.ahead[:0]
	common = slices.DeleteFunc(common, func(t *text) bool { return t.pages == nil || b.has(t) })
	long := slices.DeleteFunc(slices.Clone(common), func(t *text) bool { return t.left() == 1 })
	e.mu.Lock()
	e.waiting.sort(long)
	e.mu.Unlock()
	for _, t := range common {
		if !slices.Contains(long, t) && t.pages != nil { // it may have been preempted
			e.add(b, t, math.MaxInt)
		}
	}
	for _, t := range long {
		if t.pages == nil {
			continue
		}
		if e.follow(t); !e.reads(b.pieces, t) {
			e.add(b, t, math.MaxInt)
		}
	}
}

// has reports whether a text has a chunk in the batch.
func (b *batch) has(t *text) bool {
	return slices.ContainsFunc(b.pieces, func(p piece) bool { return p.t == t })
}

// follow shares with a text the pages that other texts with the same prefix have read since it
// started.
func (e *Engine) follow(t *text) {
	known, had := t.known(), t.pages.Len()
	if len(known)-had < e.options.PageRows {
		return
	}
	if found, _ := e.pool.Find(t.began, known); found*e.options.PageRows <= had {
		return
	}
	t.release()
	e.begin(t)
	if t.read <= had { // and these tokens are read for the first time
		t.r.cached += t.pages.Len() - had
	}
}

// reads reports whether one of the chunks already reads the next page of a text, for another text with the same prefix.
// The text then waits for that page.
func (e *Engine) reads(chunks []piece, t *text) bool {
	known := t.known()
	end := (t.pages.Len()/e.options.PageRows + 1) * e.options.PageRows
	return end <= len(known) && slices.ContainsFunc(chunks, func(p piece) bool {
		return p.t.began == t.began && p.from < end && end <= min(p.from+p.n, len(p.t.tokens())) && slices.Equal(p.t.tokens()[:end], known[:end])
	})
}

// add adds a chunk of a text to a batch, of at most the given number of tokens, if there is room. It allocates the pages,
// preempting the texts that started last if none are free.
func (e *Engine) add(b *batch, t *text, most int) {
	n, _ := t.stretch(e.machine)
	tokens, rows, tables := e.options.MaxBatchTokens, e.options.rows(), e.options.tables()
	for _, p := range b.pieces {
		tokens, rows, tables = tokens-p.n, rows-p.rows, tables-e.options.pagesOf(p.from+p.n)
	}
	n = min(n, tokens, most)
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

// launch starts the run of a batch. It returns the number of rows of the results.
func (e *Engine) launch(m *mix, b *batch) (rows int, err error) {
	b.given.Reset()
	b.adapters, b.reads, b.logits, b.temperatures = b.adapters[:0], b.reads[:0], b.logits[:0], b.temperatures[:0]
	candidates := e.machine.results.n
	for _, p := range b.pieces {
		if c := p.copy; c.Rows > 0 {
			if err := e.machine.cache.CopyRows(e.context, c.From, c.To, c.Rows); err != nil {
				return 0, err
			}
		}
		number := int32(-1)
		if v := p.t.version(); v != nil {
			if number = int32(m.numberOf(e.machine.slotOf(v))); number < 0 {
				return 0, fmt.Errorf("batching: version %s of an adapter has no position in the program", v.Digest().Short())
			}
		}
		end := p.from + p.n
		b.given.AddPiece(p.t.tokens()[p.from:end], p.from, p.t.pages.Pages()[:e.options.pagesOf(end)], e.options.PageRows)
		for range p.n {
			b.adapters = append(b.adapters, number)
		}
		whole := candidates == 0 || p.t.judged() || p.samples() && p.t.needsLogits(candidates)
		for i := len(b.adapters) - p.rows; i < len(b.adapters); i++ {
			if whole {
				b.logits = append(b.logits, len(b.reads))
			}
			b.reads, b.temperatures = append(b.reads, int32(i)), append(b.temperatures, p.t.answer.Temperature())
		}
	}
	rows = len(b.reads)
	if rows == 0 { // an axis has at least one row
		b.reads, b.temperatures = append(b.reads, 0), append(b.temperatures, 1)
	}
	if e.machine.pads {
		b.pad(e.machine.bounds)
	}
	b.given.SetInts(nn.Adapters, b.adapters)
	b.given.SetInts(readInput, b.reads)
	b.given.SetFloats(temperatureInput, b.temperatures)
	e.machine.results.temperatures = b.temperatures
	return rows, e.machine.start(e.context, m, &b.given, b.length)
}
