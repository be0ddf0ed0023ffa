package batching

import (
	"errors"
	"fmt"
	"slices"

	"github.com/lorafuse/lorafuse/internal/generate"
	"github.com/lorafuse/lorafuse/internal/serve/pages"
	"github.com/lorafuse/lorafuse/lora"
)

// text is a sequence: the tokens of a prompt and of one answer to it. Before the first answer
// token, it represents all answers to the prompt.
type text struct {
	r      *request
	number int // index of the answer
	answer *generate.Answer
	others []*generate.Answer // other answers to the same prompt, until the prompt is read
	order  uint64             // order in which running texts started
	pages  *pages.Text        // nil while the text waits
	began  pages.Root         // of the pages
	read   int                // the most tokens that have ever been read
}

// tokens returns the tokens of prompt and answer.
func (t *text) tokens() []int32 { return t.answer.Tokens() }

// left returns the number of tokens to read before the next can be sampled.
func (t *text) left() int { return len(t.tokens()) - t.pages.Len() }

// known returns the tokens that cached pages may provide. The last token must always be read, since
// its logits are needed. So must all tokens of a prompt with requested log-probabilities.
func (t *text) known() []int32 {
	if t.judged() {
		return nil
	}
	all := t.tokens()
	return all[:len(all)-1]
}

// release releases the pages.
func (t *text) release() {
	if t.pages != nil {
		t.pages.Release()
		t.pages = nil
	}
}

// judged reports whether log-probabilities of the prompt are still to be computed.
func (t *text) judged() bool { return t.r.PromptLogprobs && len(t.r.prompt) < len(t.r.Prompt) }

// version returns the adapter version, or nil for the base model.
func (t *text) version() *lora.Version {
	if t.r.lease == nil {
		return nil
	}
	return t.r.lease.Version()
}

// long reports whether the text has the tables that all long texts share.
func (t *text) long(x *machine) bool { return x.rereads && len(t.tokens()) > x.until }

// root returns the root of the pages that the text may use.
func (t *text) root(x *machine) pages.Root {
	if t.long(x) {
		return t.r.long
	}
	return t.r.root
}

// stretch returns how many of the unread tokens can be read with one set of derived tables, and the
// text length of these tables. A length of 0 means the tables for all texts up to length until. As
// in a Generator, a prompt is read with the tables for its whole length, and each later token with
// the tables for the text up to that token, unless the tables of the machine are reread.
func (t *text) stretch(x *machine) (n, length int) {
	until, read, left, prompt := x.until, t.pages.Len(), t.left(), len(t.r.Prompt)
	switch length = max(prompt, read+1); {
	case until == 0:
		return left, 0
	case t.long(x):
		return left, until + 1
	case length <= until:
		return min(left, until-read), 0
	case read < prompt:
		return prompt - read, length
	}
	return 1, length
}

// addPromptLogprobs appends to list the prompt tokens that follow the positions of logits, which
// start at from, and allocates their log-probabilities.
func (t *text) addPromptLogprobs(list []scored, from int, logits [][]float32) []scored {
	r := t.r
	if len(r.prompt) == 0 {
		r.prompt = append(r.prompt, generate.Logprobs{})
	}
	for i, x := range logits {
		if next := from + i + 1; next < len(r.Prompt) {
			r.prompt = append(r.prompt, generate.Logprobs{})
			list = append(list, scored{t: t, at: next, logits: x})
		}
	}
	return list
}

// score computes the log-probability of a token of a prompt.
func (x *scored) score() {
	r := x.t.r
	r.prompt[x.at], x.err = generate.NewLogprobs(x.logits, r.Prompt[x.at], r.Answers[0].TopLogprobs)
}

// next samples a token from a row of results. If only the candidates of the row have been read, ok may be false: the
// token then depends on the logits. A panic in a decoder or grammar becomes an error of this text.
func (t *text) next(r *results, row int, read bool) (token Token, ok bool, err error) {
	err = safely(func() (err error) {
		var chosen generate.Token
		if ok = read; read {
			chosen, err = t.answer.Next(r.row(row))
		} else {
			chosen, ok, err = t.answer.NextAmong(r.top(row))
		}
		// Other fields of a token belong to its answer, which advances.
		token.Token = generate.Token{ID: chosen.ID, Text: chosen.Text, Logprobs: chosen.Logprobs}
		return err
	})
	token.Answer, token.Finish = t.number, t.answer.Finish()
	return token, ok || err != nil, err
}

// needsLogits reports whether the next token of one of the answers depends on more logits than n candidates.
func (t *text) needsLogits(n int) bool {
	needs := func(a *generate.Answer) bool { return a.NeedsLogits(n) }
	return n == 0 || needs(t.answer) || slices.ContainsFunc(t.others, needs)
}

// ErrPanic is the error for a request that ended with a panic. The error text contains the panic.
var ErrPanic = errors.New("panic")

// safely runs f and returns a panic as an error.
func safely(f func() error) (err error) {
	defer func() {
		switch x := recover().(type) {
		case nil:
		case error:
			err = fmt.Errorf("batching: %w: %w", ErrPanic, x)
		default:
			err = fmt.Errorf("batching: %w: %v", ErrPanic, x)
		}
	}()
	return f()
}
