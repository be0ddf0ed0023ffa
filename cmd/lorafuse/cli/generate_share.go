package cli

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"

	"github.com/lorafuse/lorafuse/internal/generate"
	"github.com/lorafuse/lorafuse/internal/model"
	"github.com/lorafuse/lorafuse/internal/ranks"
)

// This file answers the lines of --prompts on several ranks.

// promptBatch holds prompts that a rank answers at the same time.
type promptBatch struct {
	First   uint64    `json:"first"` // index of the first prompt
	Lines   []int     `json:"lines"`
	Prompts [][]int32 `json:"prompts"`
}

// answerBatch holds the answers to a batch, up to the first error.
type answerBatch struct {
	Results []generate.Result `json:"results"`
	Error   string            `json:"error,omitempty"`
	Status  int               `json:"status,omitempty"` // of the error
}

// shareAll answers the lines of --prompts like answerAll. Rank 0 reads the prompts and writes the answers.
func (w *writer) shareAll(ctx context.Context, g *ranks.Group) error {
	if err := w.model.CheckTask(model.NextToken); err != nil {
		return fmt.Errorf("generate: %w", err)
	}
	a := &answering{writer: w}
	var in io.ReadCloser
	if err := g.Do(ctx, func(context.Context) (err error) {
		if g.Leads() {
			in, err = a.openPrompts()
		}
		return err
	}); err != nil {
		return err
	}
	if in != nil {
		defer in.Close()
	}
	defer a.close()
	out := bufio.NewWriter(w.app.out)
	var unwritten []*task
	return ranks.Collect(ctx, g, a.batches(ctx, in, &unwritten), func(ctx context.Context, _ int, item []byte) ([]byte, error) {
		var b promptBatch
		if err := json.Unmarshal(item, &b); err != nil {
			return nil, err
		}
		answers, err := a.answerBatch(ctx, b)
		if err != nil {
			return nil, err
		}
		return json.Marshal(answers)
	}, func(_ int, result []byte) error {
		var answers answerBatch
		if err := json.Unmarshal(result, &answers); err != nil {
			return err
		}
		for _, r := range answers.Results {
			t := unwritten[0]
			unwritten, t.result = unwritten[1:], r
			if err := a.writeAnswer(out, t); err != nil {
				return err
			}
		}
		if err := out.Flush(); err != nil || answers.Error == "" {
			return err
		}
		err := a.at(unwritten[0], errors.New(answers.Error))
		if answers.Status == ExitFailure {
			err = &failure{err}
		}
		return err
	})
}

// batches yields the prompts of the input in batches, and adds their tasks to unwritten.
func (a *answering) batches(ctx context.Context, in io.Reader, unwritten *[]*task) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		var b promptBatch
		flush := func() bool {
			if len(b.Prompts) == 0 {
				return true
			}
			item, err := json.Marshal(b)
			b = promptBatch{First: a.prompts}
			return yield(item, err) && err == nil
		}
		lines := readLines(ctx, in)
		for {
			var l line
			ok := true
			select {
			case l, ok = <-lines:
			case <-ctx.Done():
				l.err = ctx.Err()
			}
			if !ok {
				flush()
				return
			}
			if l.err == nil && len(bytes.TrimSpace(l.text)) == 0 {
				continue
			}
			t, err := &task{line: l.number}, l.err
			if err == nil {
				err = a.prepare(t, l.text)
			}
			if err != nil {
				if flush() {
					yield(nil, a.at(t, err))
				}
				return
			}
			a.prompts++
			*unwritten = append(*unwritten, t)
			b.Lines, b.Prompts = append(b.Lines, t.line), append(b.Prompts, t.ids)
			if len(b.Prompts) == textsAtOnce && !flush() {
				return
			}
		}
	}
}

// answerBatch answers the prompts of a batch.
func (a *answering) answerBatch(ctx context.Context, b promptBatch) (answers answerBatch, err error) {
	var tasks []*task
	tokens := 0
	for i, ids := range b.Prompts {
		t := &task{line: b.Lines[i], ids: ids, done: make(chan struct{})}
		if t.options, err = a.options(b.First + uint64(i)); err != nil {
			return answers, err
		}
		tasks, tokens = append(tasks, t), max(tokens, a.needs(t))
	}
	if a.engine == nil || tokens > a.engine.MaxLength() {
		if err := a.reopen(ctx, tokens); err != nil {
			return answers, err
		}
	}
	own, cancel := context.WithCancel(ctx)
	defer func() {
		cancel()
		a.work.Wait()
		a.pending = nil
	}()
	for _, t := range tasks {
		a.begin(own, t)
	}
	for _, t := range tasks {
		if <-t.done; ctx.Err() != nil {
			return answers, ctx.Err()
		}
		if t.err != nil {
			answers.Error, answers.Status = t.err.Error(), statusOf(ctx, t.err)
			break
		}
		answers.Results = append(answers.Results, t.result)
	}
	return answers, nil
}
