package generate

import (
	"context"
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
	// MinNewTokens is the number of tokens that do not end the answer: those of EOS are
	// not chosen, unless Grammar lets nothing else follow, and stop strings that end
	// within the text of these tokens are text like any other. A grammar whose text is
	// complete, and where nothing can follow, ends the answer even so.
	MinNewTokens int
	Sampler      sample.Sampler
	// Decoder gives the text of the tokens; nil: no text. It must be at the
	// beginning of a text.
	Decoder Decoder
	// Stop are texts that end the answer, of which they are no part unless
	// IncludeStop says so. They need a Decoder.
	Stop        []string
	IncludeStop bool
	// EOS are the tokens that end the answer; nil: those of the model.
	EOS       []int32
	IgnoreEOS bool
	// Grammar keeps the answer to a grammar; nil: anything. It must be at the
	// beginning of a text. The answer ends where nothing can follow, and the tokens
	// that end it are chosen only where the text is complete. An answer that ends by
	// FinishLength is a beginning alone.
	Grammar *constrain.Matcher
	// Logprobs asks for the log-probability of each token, and TopLogprobs for those of
	// so many of the most likely tokens beside it. They are the model's own, before
	// grammar, penalties and temperature.
	Logprobs    bool
	TopLogprobs int
}

// Token is one step of an answer.
type Token struct {
	ID int32
	// Text is what can be shown with this token: never half a character, nor
	// what may be the beginning of a stop string. It can be empty, and with
	// the last token it is all that is left.
	Text     string
	Logprobs Logprobs // zero where not asked for

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
	c := g.host.Model().Config
	a, err := NewAnswer(c.VocabSize, c.EOS, g.maxLength-len(prompt), prompt, o)
	if err != nil {
		return Result{PromptTokens: len(prompt), Finish: FinishError}, err
	}
	var r Result
	err = g.answer(ctx, a, &r, onToken)
	said := a.Result()
	r.IDs, r.Text, r.Finish, r.PromptTokens = said.IDs, said.Text, said.Finish, said.PromptTokens
	if err != nil {
		r.Finish = FinishError
		if ctx.Err() != nil {
			r.Finish = FinishCancelled
		}
	}
	return r, err
}

// answer runs the model until a is whole. What it measures goes into r.
func (g *Generator) answer(ctx context.Context, a *Answer, r *Result, onToken func(Token) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	start, prompt := time.Now(), a.Tokens()
	g.keep(prompt)
	r.CachedTokens = len(g.cached)
	// Room for the answer is made at once where its length is known, so that
	// too little memory shows before the first token.
	if err := g.reserve(ctx, len(prompt)+a.known()); err != nil {
		return err
	}
	a.tokens = slices.Grow(a.tokens, a.known())
	logits, err := g.read(ctx, prompt)
	if err != nil {
		return err
	}
	r.PromptTime = time.Since(start)
	start = time.Now()
	defer func() { r.TokenTime = time.Since(start) }()
	for {
		token, err := a.Next(logits)
		if err != nil {
			return err
		}
		if onToken != nil {
			if err := onToken(token); err != nil {
				return err
			}
		}
		if a.Finish() != "" {
			return nil
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := g.reserve(ctx, len(a.Tokens())); err != nil {
			return err
		}
		if logits, err = g.read(ctx, a.Tokens()); err != nil {
			return err
		}
	}
}
