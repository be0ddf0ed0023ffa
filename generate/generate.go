package generate

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/lorafuse/lorafuse/generate/constrain"
	"github.com/lorafuse/lorafuse/generate/sample"
)

// Decoder turns tokens into text as they come; [tokenizer.Stream] is one. What
// Push and Flush return, put together, is the text of all tokens.
type Decoder interface {
	Push(id int32) (string, error)
	Flush() string
}

// GenerateOptions say how a prompt is continued. The zero value takes the most likely
// token each time until the model ends its text.
type GenerateOptions struct {
	MaxNewTokens int // 0: as many as there is room for
	Sampler      sample.Sampler
	// Decoder gives the text of the tokens; nil: no text. It must be at the
	// beginning of a text.
	Decoder Decoder
	// Stop are texts that end the answer, of which they are no part. They need
	// a Decoder.
	Stop []string
	// EOS are the tokens that end the answer; nil: those of the model.
	EOS       []int32
	IgnoreEOS bool
	// Grammar keeps the answer to a grammar; nil: anything. It must be at the
	// beginning of a text. The answer ends where nothing can follow, and the tokens
	// that end it are chosen only where the text is complete. An answer that ends by
	// FinishLength is a beginning alone.
	Grammar *constrain.Matcher
}

// Token is one step of an answer.
type Token struct {
	ID int32
	// Text is what can be shown with this token: never half a character, nor
	// what may be the beginning of a stop string. It can be empty, and with
	// the last token it is all that is left.
	Text string

	sampler *sample.Sampler
}

// Prob is the probability of the token among those that it was chosen from, see
// [sample.Sampler.Prob]. It is to be asked for before the next token.
func (t Token) Prob() float32 {
	if t.sampler == nil {
		return 0
	}
	return t.sampler.Prob()
}

// Finish says why an answer ended.
type Finish string

// The reasons.
const (
	FinishEOS       Finish = "eos"       // the model ended it
	FinishGrammar   Finish = "grammar"   // it is complete, and nothing can follow
	FinishStop      Finish = "stop"      // a stop string
	FinishLength    Finish = "length"    // MaxNewTokens, or no more room
	FinishCancelled Finish = "cancelled" // the context ended
	FinishError     Finish = "error"     // what is returned beside the result
)

// Result is an answer. It holds what there was where an error comes with it.
type Result struct {
	IDs    []int32 // generated, with the token that ended it
	Text   string  // what was shown
	Finish Finish

	PromptTokens int
	CachedTokens int // of the prompt, that had been read before
	// PromptTime is until the logits for the first token, TokenTime for all
	// tokens after that.
	PromptTime, TokenTime time.Duration
}

// TokensPerSecond is the speed of generating, without reading the prompt.
func (r Result) TokensPerSecond() float64 {
	if len(r.IDs) < 2 || r.TokenTime <= 0 {
		return 0
	}
	return float64(len(r.IDs)-1) / r.TokenTime.Seconds()
}

// Generate continues prompt. onToken, if not nil, is called with each token as
// it is chosen; its error ends the answer and is returned. A context that ends
// does so between two tokens, and the generator can be used on. The same
// options give the same tokens on a generator that was reset; where a part of
// the prompt was read with an earlier text, logits can differ by rounding.
//
// Errors: ErrTooLong, ErrToken, ErrOption, those of the sampler, the decoder
// and the device.
func (g *Generator) Generate(ctx context.Context, prompt []int32, o GenerateOptions, onToken func(Token) error) (Result, error) {
	a := answer{g: g, options: o, sampler: o.Sampler, onToken: onToken, stop: stopper{stops: o.Stop}, allowed: allowed{grammar: o.Grammar}}
	a.PromptTokens = len(prompt)
	if err := a.check(prompt); err != nil {
		a.Finish = FinishError
		return a.Result, err
	}
	err := a.generate(ctx, prompt)
	if err != nil {
		a.Finish = FinishError
		if ctx.Err() != nil {
			a.Finish = FinishCancelled
		}
	}
	return a.Result, err
}

// answer is a result in the making.
type answer struct {
	Result
	g       *Generator
	options GenerateOptions
	sampler sample.Sampler
	onToken func(Token) error
	eos     []int32
	allowed allowed
	stop    stopper
	most    int // tokens
}

// check looks at the options before anything is run.
func (a *answer) check(prompt []int32) error {
	o, room := &a.options, a.g.maxLength-len(prompt)
	switch {
	case len(prompt) == 0:
		return fmt.Errorf("generate: %w: the prompt has none; begin with the token that begins a text", ErrToken)
	case room < 1:
		return fmt.Errorf("generate: %w: the prompt has %d, and prompt and answer can have %d", ErrTooLong, len(prompt), a.g.maxLength)
	case o.MaxNewTokens < 0:
		return fmt.Errorf("generate: %w: %d new tokens, expected 1 or more, or 0 for as many as there is room for", ErrOption, o.MaxNewTokens)
	case len(o.Stop) > 0 && o.Decoder == nil:
		return fmt.Errorf("generate: %w: stop strings without a decoder", ErrOption)
	case slices.Contains(o.Stop, ""):
		return fmt.Errorf("generate: %w: a stop string is empty", ErrOption)
	case o.Grammar != nil && o.Grammar.Vocabulary().Size() > len(a.g.logits):
		return fmt.Errorf("generate: %w: the vocabulary of the grammar has %d tokens, that of the model %d", ErrOption, o.Grammar.Vocabulary().Size(), len(a.g.logits))
	}
	a.most = room
	if o.MaxNewTokens > 0 {
		a.most = min(a.most, o.MaxNewTokens)
	}
	if !o.IgnoreEOS {
		if a.eos = o.EOS; a.eos == nil {
			a.eos = a.g.runtime.Model().Config.EOS
		}
	}
	if err := a.sampler.Validate(); err != nil {
		return fmt.Errorf("generate: %w", err)
	}
	return checkTokens(a.g.runtime.Model(), prompt)
}

func (a *answer) generate(ctx context.Context, prompt []int32) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	start, g := time.Now(), a.g
	g.keep(prompt)
	a.CachedTokens = len(g.cached)
	// Room for the answer is made at once where its length is known, so that
	// too little memory shows before the first token.
	answer := min(a.most, a.options.MaxNewTokens)
	if err := g.reserve(ctx, len(prompt)+answer); err != nil {
		return err
	}
	history := append(make([]int32, 0, len(prompt)+answer), prompt...)
	a.IDs = make([]int32, 0, answer)
	logits, err := g.read(ctx, prompt)
	if err != nil {
		return err
	}
	a.PromptTime = time.Since(start)
	start = time.Now()
	defer func() { a.TokenTime = time.Since(start) }()
	for {
		id, err := a.sampler.Next(a.allowed.of(logits, a.eos), history)
		if err != nil {
			return fmt.Errorf("generate: token %d: %w", len(history), err)
		}
		history = append(history, id)
		if err := a.take(id); err != nil || a.Finish != "" {
			return err
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := g.reserve(ctx, len(history)); err != nil {
			return err
		}
		if logits, err = g.read(ctx, history); err != nil {
			return err
		}
	}
}

// take adds a token to the answer, and sets Finish if it is the last one.
func (a *answer) take(id int32) error {
	a.IDs = append(a.IDs, id)
	if !slices.Contains(a.eos, id) {
		if err := a.allowed.accept(id); err != nil {
			return fmt.Errorf("generate: %w", err)
		}
	}
	switch {
	case slices.Contains(a.eos, id):
		a.Finish = FinishEOS
	case a.allowed.ended():
		a.Finish = FinishGrammar
	case len(a.IDs) == a.most:
		a.Finish = FinishLength
	}
	text, err := a.text(id)
	if err != nil {
		return fmt.Errorf("generate: token %d: %w", len(a.IDs)-1, err)
	}
	a.Text += text
	if a.onToken == nil {
		return nil
	}
	return a.onToken(Token{id, text, &a.sampler})
}

// text is what can be shown after token id.
func (a *answer) text(id int32) (string, error) {
	d := a.options.Decoder
	if d == nil {
		return "", nil
	}
	piece, err := d.Push(id)
	if err != nil {
		return "", err
	}
	if a.Finish != "" {
		piece += d.Flush()
	}
	show, stopped := a.stop.push(piece)
	switch {
	case stopped:
		if a.Finish == "" {
			d.Flush() // the decoder is ready for another text
		}
		a.Finish = FinishStop
	case a.Finish != "":
		show += a.stop.flush()
	}
	return show, nil
}
