package generate

import (
	"fmt"
	"slices"
	"strings"

	"github.com/lorafuse/lorafuse/internal/generate/sample"
)

// Answer is an answer that is generated one token at a time. It needs no device: the caller
// runs the model, passes logits and receives tokens. It is not safe for concurrent use.
type Answer struct {
	options GenerateOptions
	sampler sample.Sampler
	vocab   int
	most    int // tokens of the answer

	tokens  []int32 // prompt and answer
	prompt  int     // tokens
	allowed tokenMask
	stop    stopper
	text    strings.Builder // the text shown so far
	finish  Finish
}

// NewAnswer returns an empty answer to prompt, which is copied. vocab is the vocabulary size
// of the model, eos are the tokens that end its text, and room is the maximum number of tokens
// of the answer. Errors: ErrTooLong if there is no room, ErrToken for the prompt, ErrOption,
// sample.ErrSetting.
func NewAnswer(vocab int, eos []int32, room int, prompt []int32, o GenerateOptions) (*Answer, error) {
	switch {
	case len(prompt) == 0:
		return nil, fmt.Errorf("generate: %w: the prompt has none; begin with the token that begins a text", ErrToken)
	case room < 1:
		return nil, fmt.Errorf("generate: %w: the prompt has %d, and prompt and answer can have %d", ErrTooLong, len(prompt), len(prompt)+room)
	}
	if err := o.check(vocab); err != nil {
		return nil, fmt.Errorf("generate: %w", err)
	}
	if err := checkTokens(vocab, prompt); err != nil {
		return nil, err
	}
	a := &Answer{options: o, sampler: o.Sampler, vocab: vocab, most: room, tokens: slices.Clone(prompt), prompt: len(prompt), stop: stopper{stops: o.Stop, include: o.IncludeStop}}
	if o.MaxNewTokens > 0 {
		a.most = min(room, o.MaxNewTokens)
	}
	a.allowed.grammar = o.Grammar
	if !o.IgnoreEOS {
		if a.allowed.eos = o.EOS; o.EOS == nil {
			a.allowed.eos = eos
		}
	}
	return a, nil
}

// Next chooses the next token from the logits that follow Tokens; logits are not modified.
// Errors end the answer: sample.ErrLogits, errors of the decoder, and ErrOption if only tokens
// that end the answer can follow but they are not allowed yet.
func (a *Answer) Next(logits []float32) (Token, error) {
	if err := a.checkOpen(); err != nil {
		return Token{}, err
	}
	t, err := a.next(logits)
	if err != nil {
		a.finish = FinishError
	}
	return t, err
}

// NextAmong chooses the token that Next would choose, from the most likely ones. If ok is false, the choice needs all
// logits, and the answer is unchanged. Errors end the answer; see Next.
func (a *Answer) NextAmong(c sample.Candidates) (t Token, ok bool, err error) {
	if err := a.checkOpen(); err != nil {
		return Token{}, false, err
	}
	if c.Vocab != a.vocab || a.NeedsLogits(len(c.IDs)) {
		return Token{}, false, nil
	}
	id, ok := a.sampler.NextAmong(c, len(a.tokens))
	if !ok {
		return Token{}, false, nil
	}
	if t, err = a.append(Token{ID: id, sampler: &a.sampler}); err != nil {
		a.finish = FinishError
	}
	return t, true, err
}

// NeedsLogits reports whether the next token depends on more logits than the k largest, whatever they are.
func (a *Answer) NeedsLogits(k int) bool {
	return a.options.Logprobs || a.allowed.masks(a.ends()) || a.sampler.NeedsLogits(k, a.vocab)
}

// Temperature returns the divisor of the logits of the next token: 1 for greedy choice.
func (a *Answer) Temperature() float32 {
	if a.sampler.Temperature == 0 {
		return 1
	}
	return float32(a.sampler.Temperature)
}

// checkOpen returns an error if the answer has ended.
func (a *Answer) checkOpen() error {
	if a.finish == "" {
		return nil
	}
	return fmt.Errorf("generate: %w: another token of an answer that has ended (%s)", ErrOption, a.finish)
}

// ends reports whether the next token may end the answer.
func (a *Answer) ends() bool { return len(a.tokens)-a.prompt >= a.options.MinNewTokens }

// Finish returns why the answer ended; it is empty until the last token.
func (a *Answer) Finish() Finish { return a.finish }

// Tokens returns the tokens of prompt and answer. The caller must not modify them.
func (a *Answer) Tokens() []int32 { return slices.Clip(a.tokens) }

// Result returns the answer so far, without times.
func (a *Answer) Result() Result {
	return Result{IDs: a.Tokens()[a.prompt:], Text: a.text.String(), Finish: a.finish, PromptTokens: a.prompt}
}

// check validates the options, without regard to the prompt.
func (o *GenerateOptions) check(vocab int) error {
	switch {
	case o.MaxNewTokens < 0:
		return fmt.Errorf("%w: %d new tokens, expected 1 or more, or 0 for as many as there is room for", ErrOption, o.MaxNewTokens)
	case o.MinNewTokens < 0:
		return fmt.Errorf("%w: at least %d new tokens, expected 0 or more", ErrOption, o.MinNewTokens)
	case o.MaxNewTokens > 0 && o.MinNewTokens > o.MaxNewTokens:
		return fmt.Errorf("%w: at least %d new tokens and at most %d", ErrOption, o.MinNewTokens, o.MaxNewTokens)
	case len(o.Stop) > 0 && o.Decoder == nil:
		return fmt.Errorf("%w: stop strings without a decoder", ErrOption)
	case slices.Contains(o.Stop, ""):
		return fmt.Errorf("%w: a stop string is empty", ErrOption)
	case o.TopLogprobs < 0:
		return fmt.Errorf("%w: log-probabilities of the %d most likely tokens, expected 0 or more", ErrOption, o.TopLogprobs)
	case o.TopLogprobs > 0 && !o.Logprobs:
		return fmt.Errorf("%w: log-probabilities of the %d most likely tokens without that of the token", ErrOption, o.TopLogprobs)
	case o.Grammar != nil && o.Grammar.Vocabulary().Size() > vocab:
		return fmt.Errorf("%w: the vocabulary of the grammar has %d tokens, that of the model %d", ErrOption, o.Grammar.Vocabulary().Size(), vocab)
	}
	return o.Sampler.ValidateFor(vocab)
}

// known returns the maximum length of the answer if the options set one, else 0.
func (a *Answer) known() int { return min(a.most, a.options.MaxNewTokens) }

func (a *Answer) next(logits []float32) (Token, error) {
	if len(logits) != a.vocab {
		return Token{}, fmt.Errorf("generate: token %d: %w: %d of them, the vocabulary has %d", len(a.tokens), sample.ErrLogits, len(logits), a.vocab)
	}
	allowed, err := a.allowed.apply(logits, a.ends())
	if err != nil {
		return Token{}, fmt.Errorf("generate: token %d: %w", len(a.tokens), err)
	}
	id, err := a.sampler.Next(allowed, a.tokens[:a.prompt], a.tokens[a.prompt:])
	if err != nil {
		return Token{}, fmt.Errorf("generate: token %d: %w", len(a.tokens), err)
	}
	t := Token{ID: id, sampler: &a.sampler}
	if a.options.Logprobs {
		if t.Logprobs, err = NewLogprobs(logits, id, a.options.TopLogprobs); err != nil {
			return Token{}, err
		}
	}
	return a.append(t)
}

// append appends a chosen token to the answer, and sets the text of the token.
func (a *Answer) append(t Token) (_ Token, err error) {
	id, n, ends := t.ID, len(a.tokens)-a.prompt, a.ends()
	a.tokens = append(a.tokens, id)
	if err := a.allowed.accept(id); err != nil {
		return Token{}, fmt.Errorf("generate: %w", err)
	}
	switch {
	case slices.Contains(a.allowed.eos, id):
		a.finish = FinishEOS
	case a.allowed.ended():
		a.finish = FinishGrammar
	case n+1 == a.most:
		a.finish = FinishLength
	}
	if t.Text, err = a.show(id, ends); err != nil {
		return Token{}, fmt.Errorf("generate: token %d: %w", n, err)
	}
	a.text.WriteString(t.Text)
	return t, nil
}

// show returns the text that can be shown after token id. If ends is false, stop strings that
// end in the text of this token are ignored.
func (a *Answer) show(id int32, ends bool) (string, error) {
	d := a.options.Decoder
	if d == nil {
		return "", nil
	}
	piece, err := d.Push(id)
	if err != nil {
		return "", err
	}
	if a.finish != "" {
		piece += d.Flush()
	}
	if !ends {
		a.stop.pass(piece)
		piece = ""
	}
	show, stopped := a.stop.push(piece)
	switch {
	case stopped:
		if a.finish == "" {
			d.Flush() // the decoder is ready for another text
		}
		a.finish = FinishStop
	case a.finish != "":
		show += a.stop.flush()
	}
	return show, nil
}
