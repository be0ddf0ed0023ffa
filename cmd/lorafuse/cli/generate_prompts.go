package cli

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/bits"
	"os"
	"strings"
	"sync"

	"github.com/lorafuse/lorafuse/internal/generate"
	"github.com/lorafuse/lorafuse/internal/model"
	"github.com/lorafuse/lorafuse/internal/serve/batching"
	"github.com/lorafuse/lorafuse/tokenizer/chat"
)

// This file answers the lines of --prompts, many at the same time.

const (
	// textsAtOnce is the number of prompts generated concurrently.
	textsAtOnce = 16
	// linesUnderWay is the maximum number of lines read but not yet written. It exceeds textsAtOnce, so that one long
	// answer does not block others.
	linesUnderWay = 4 * textsAtOnce
	// shortestRoom is the least number of tokens that a text has room for.
	shortestRoom = 512
	// adapterName is the name of the adapter in the registry of an engine.
	adapterName = "adapter"
)

// answering is the state of a run with --prompts.
type answering struct {
	*writer
	name    string           // of the input
	engine  *batching.Engine // nil until there is a prompt
	prompts uint64           // that were read
	pending []*task          // in the order of the input
	next    *task            // waits for an engine with enough capacity; nil if no task waits
	work    sync.WaitGroup
}

// task is a line and its answer.
type task struct {
	line    int // its line number, 0 if none could be read
	asked   asked
	ids     []int32
	options generate.GenerateOptions

	done   chan struct{} // closed when the fields below are set
	result generate.Result
	err    error
}

// asked is the request on one line.
type asked struct {
	Prompt   *string           `json:"prompt"`
	Messages json.RawMessage   `json:"messages"`
	Tools    []json.RawMessage `json:"tools"`
}

// answerAll answers the lines of --prompts independently of each other and writes the answers in order. It stops at
// the first error, after the answers to the lines before.
func (w *writer) answerAll(ctx context.Context) error {
	if err := w.model.CheckTask(model.NextToken); err != nil {
		return fmt.Errorf("generate: %w", err)
	}
	a := &answering{writer: w}
	in, err := a.openPrompts()
	if err != nil {
		return err
	}
	defer in.Close()
	out := bufio.NewWriter(w.app.out)
	ctx, cancel := context.WithCancel(ctx)
	defer func() {
		cancel()
		a.work.Wait()
		a.close()
	}()
	return a.run(ctx, readLines(ctx, in), out)
}

// openPrompts opens the file of --prompts.
func (a *answering) openPrompts() (io.ReadCloser, error) {
	if a.flags.prompts == "-" {
		a.name = "standard input"
		return io.NopCloser(a.app.in), nil
	}
	f, err := os.Open(a.flags.prompts)
	if err != nil {
		return nil, fmt.Errorf("generate: --prompts: %w", err)
	}
	a.name = a.flags.prompts
	return f, nil
}

// run reads lines and writes answers.
func (a *answering) run(ctx context.Context, lines <-chan line, out *bufio.Writer) error {
	for lines != nil || len(a.pending) > 0 || a.next != nil {
		if a.next != nil && len(a.pending) == 0 {
			if err := a.reopen(ctx, a.needs(a.next)); err != nil {
				return err
			}
			a.begin(ctx, a.next)
			a.next = nil
		}
		more, first := lines, (chan struct{})(nil)
		if len(a.pending) > 0 {
			first = a.pending[0].done
		}
		if a.next != nil || len(a.pending) == linesUnderWay {
			more = nil
		}
		select {
		case l, ok := <-more:
			if !ok || a.take(ctx, l) != nil {
				lines = nil
			}
		case <-first:
			if err := a.write(out); err != nil {
				return err
			}
		case <-ctx.Done():
			return fmt.Errorf("%s: %w", a.name, ctx.Err())
		}
	}
	return nil
}

// take starts to answer a line. An error of the line is written in its turn.
func (a *answering) take(ctx context.Context, l line) error {
	if l.err == nil && len(bytes.TrimSpace(l.text)) == 0 {
		return nil
	}
	t, err := &task{line: l.number, done: make(chan struct{})}, l.err
	if err == nil {
		err = a.prepare(t, l.text)
	}
	if err != nil {
		t.err = err
		close(t.done)
		a.pending = append(a.pending, t)
		return err
	}
	a.prompts++
	if a.engine == nil || a.needs(t) > a.engine.MaxLength() {
		a.next = t
		return nil
	}
	a.begin(ctx, t)
	return nil
}

// prepare reads a line and checks all that can be checked before it is answered.
func (a *answering) prepare(t *task, text []byte) (err error) {
	if err := json.Unmarshal(text, &t.asked); err != nil {
		return fmt.Errorf(`not {"prompt": "..."} or {"messages": [...]}: %w`, err)
	}
	if t.ids, err = a.promptOf(t.asked); err != nil {
		return err
	}
	if t.options, err = a.options(a.prompts); err != nil {
		return err
	}
	c := a.model.Config
	_, err = generate.NewAnswer(c.VocabSize, c.EOS, c.MaxLength()-len(t.ids), t.ids, t.options)
	return err
}

// promptOf returns the token IDs of the prompt on a line.
func (w *writer) promptOf(l asked) ([]int32, error) {
	switch {
	case l.Prompt != nil && l.Messages != nil:
		return nil, errors.New("found prompt and messages, expected one of the two")
	case l.Prompt != nil:
		return w.textPrompt(*l.Prompt)
	case l.Messages != nil:
		var messages []chat.Message
		if err := json.Unmarshal(l.Messages, &messages); err != nil {
			return nil, fmt.Errorf("messages: %w", err)
		}
		return w.chatPrompt(messages, l.Tools...)
	}
	return nil, errors.New(`found neither prompt nor messages, expected {"prompt": "..."} or {"messages": [...]}`)
}

// needs returns the number of tokens of a prompt and its answer.
func (a *answering) needs(t *task) int {
	return len(t.ids) + min(a.newTokens, a.model.Config.MaxLength()-len(t.ids))
}

// begin lets the engine answer a prompt.
func (a *answering) begin(ctx context.Context, t *task) {
	a.pending = append(a.pending, t)
	r := batching.Request{Prompt: t.ids, Answers: []generate.GenerateOptions{t.options}}
	if a.model.Adapter != nil {
		r.Adapter = adapterName
	}
	tokens := a.engine.Submit(ctx, r)
	a.work.Go(func() {
		defer close(t.done)
		var text strings.Builder
		for x, err := range tokens {
			if err != nil {
				t.err = underWay(err)
				return
			}
			text.WriteString(x.Text)
			t.result.IDs = append(t.result.IDs, x.ID)
			t.result.Finish, t.result.PromptTime, t.result.TokenTime = x.Finish, x.Times.Prefill, x.Times.Decode
		}
		t.result.Text = text.String()
	})
}

// write writes finished answers in order.
func (a *answering) write(out *bufio.Writer) error {
	for len(a.pending) > 0 {
		select {
		case <-a.pending[0].done:
		default:
			return out.Flush()
		}
		t := a.pending[0]
		a.pending[0] = nil
		a.pending = a.pending[1:]
		if t.err != nil {
			return errors.Join(out.Flush(), a.at(t, t.err))
		}
		if err := a.writeAnswer(out, t); err != nil {
			return err
		}
	}
	return out.Flush()
}

// at adds the line of a task to an error.
func (a *answering) at(t *task, err error) error {
	if t.line == 0 {
		return fmt.Errorf("%s: %w", a.name, err)
	}
	return fmt.Errorf("%s:%d: %w", a.name, t.line, err)
}

// writeAnswer writes the result of a task.
func (a *answering) writeAnswer(out io.Writer, t *task) error {
	a.noteCut(t.result)
	full := newAnswer(t.ids, t.result)
	full.Prompt, full.Messages = t.asked.Prompt, t.asked.Messages
	if err := encode(out, full, ""); err != nil {
		return a.at(t, err)
	}
	return nil
}

// reopen replaces the engine by one for sequences of the given number of tokens. The capacity is rounded up to a power
// of two, so that growing prompts cause few replacements.
func (a *answering) reopen(ctx context.Context, tokens int) error {
	first := a.engine == nil
	a.close()
	room := min(max(shortestRoom, 1<<bits.Len(uint(tokens-1))), a.model.Config.MaxLength())
	e, err := batching.New(ctx, a.session.dev, a.model.Model, batching.Options{MaxLength: room, MaxTexts: textsAtOnce, FixedAdapters: true})
	if err != nil {
		return err
	}
	a.engine = e
	if first {
		a.app.loaded(a.session.dev)
	}
	if a.model.Adapter != nil {
		_, err = e.Adapters().Add(ctx, adapterName, a.model.Adapter)
	}
	return err
}

func (a *answering) close() {
	if a.engine != nil {
		a.engine.Close()
		a.engine = nil
	}
}

// line is a line of a file without its line ending, or the error that ended reading, which has no number.
type line struct {
	number int
	text   []byte
	err    error
}

// readLines reads ahead by one line. It closes the channel after the last line, unless ctx ends first.
func readLines(ctx context.Context, in io.Reader) <-chan line {
	lines := make(chan line)
	go func() {
		r := bufio.NewReader(in)
		for n := 1; ; n++ {
			text, err := r.ReadBytes('\n')
			l := line{number: n, text: text}
			if err != nil && !errors.Is(err, io.EOF) {
				l = line{err: err}
			}
			select {
			case lines <- l:
			case <-ctx.Done():
				return
			}
			if err != nil {
				close(lines)
				return
			}
		}
	}()
	return lines
}
