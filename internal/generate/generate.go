package generate

import (
	"context"
	"slices"
	"time"

	"github.com/lorafuse/lorafuse/internal/generate/constrain"
	"github.com/lorafuse/lorafuse/internal/generate/sample"
)

// Decoder converts a stream of tokens to text; [tokenizer.Stream] implements it. The results
// of Push and Flush, concatenated, are the text of all tokens.
type Decoder interface {
	Push(id int32) (string, error)
	Flush() string
}

// GenerateOptions configure the generation of an answer. The zero value decodes greedily until
// the model ends its text.
type GenerateOptions struct {
	MaxNewTokens int // zero means as many as fit
	// MinNewTokens is the minimum length of the answer in tokens. Until then EOS tokens are
	// not chosen, unless Grammar allows nothing else, and stop strings that end within these
	// tokens are ordinary text. The answer still ends if the text of a grammar is complete and
	// nothing can follow.
	MinNewTokens int
	Sampler      sample.Sampler
	// Decoder decodes the tokens. Nil means that no text is returned. It must be at the
	// beginning of a text.
	Decoder Decoder
	// Stop lists texts that end the answer. The answer does not contain them unless
	// IncludeStop is set. They need a Decoder.
	Stop        []string
	IncludeStop bool
	// EOS lists the tokens that end the answer. Nil means the model's own.
	EOS       []int32
	IgnoreEOS bool
	// Grammar constrains the answer. Nil means no constraint. It must be at the beginning of a
	// text. The answer ends if nothing can follow; tokens that end it are chosen only if the
	// text is complete. An answer with FinishLength may be incomplete.
	Grammar *constrain.Matcher
	// Logprobs asks for the log-probability of each token, and TopLogprobs is the number of
	// most likely alternatives to report in addition. They are computed before grammar,
	// penalties and temperature apply.
	Logprobs    bool
	TopLogprobs int
}

// Token is one step of an answer.
type Token struct {
	ID int32
	// Text is the text that can be shown with this token. It never contains part of a
	// character or of a possible stop string. It can be empty; with the last token it is all
	// remaining text.
	Text     string
	Logprobs Logprobs // zero unless requested

	sampler *sample.Sampler
}

// Prob returns the probability of the token among the candidates that it was sampled from, see
// [sample.Sampler.Prob]. Call it before the next token is chosen.
func (t Token) Prob() float32 {
	if t.sampler == nil {
		return 0
	}
	return t.sampler.Prob()
}

// Finish is the reason why an answer ended.
type Finish string

// The reasons.
const (
	FinishEOS       Finish = "eos"       // the model ended the answer
	FinishGrammar   Finish = "grammar"   // the text is complete, and nothing can follow
	FinishStop      Finish = "stop"      // a stop string
	FinishLength    Finish = "length"    // MaxNewTokens, or the maximum length was reached
	FinishCancelled Finish = "cancelled" // the context ended
	FinishError     Finish = "error"     // an error was returned with the result
)

// Result is an answer. If an error is returned with it, it holds the part generated before the
// error.
type Result struct {
	IDs    []int32 // generated, with the token that ended it
	Text   string  // the text shown
	Finish Finish

	PromptTokens int
	CachedTokens int // prompt tokens read from the cache
	// PromptTime is the time until the logits of the first token, TokenTime the time of all
	// later tokens.
	PromptTime, TokenTime time.Duration
}

// TokensPerSecond returns the decoding speed, without prefill.
func (r Result) TokensPerSecond() float64 {
	if len(r.IDs) < 2 || r.TokenTime <= 0 {
		return 0
	}
	return float64(len(r.IDs)-1) / r.TokenTime.Seconds()
}

// Generate continues prompt. onToken, if not nil, is called with each new token; its error
// ends the answer and is returned. Cancellation takes effect between two tokens, and the
// generator stays usable. The same options give the same tokens on a generator that was reset.
// If part of the prompt was cached from an earlier text, logits can differ by rounding.
//
// Errors: ErrTooLong, ErrToken, ErrOption, and errors of the sampler, the decoder and the
// device.
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

// answer runs the model until a is complete. It records its measurements in r.
func (g *Generator) answer(ctx context.Context, a *Answer, r *Result, onToken func(Token) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	start, prompt := time.Now(), a.Tokens()
	g.keep(prompt)
	r.CachedTokens = len(g.cached)
	// Reserve memory for the whole answer if its length is known, so that a lack of memory is
	// reported before the first token.
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
