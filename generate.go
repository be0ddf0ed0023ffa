package lorafuse

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"strings"

	"github.com/lorafuse/lorafuse/internal/generate"
	"github.com/lorafuse/lorafuse/internal/generate/constrain"
	"github.com/lorafuse/lorafuse/internal/generate/sample"
	"github.com/lorafuse/lorafuse/internal/serve/batching"
	"github.com/lorafuse/lorafuse/tokenizer"
	"github.com/lorafuse/lorafuse/tokenizer/chat"
)

// Message is one turn of a conversation: its role, such as system, user or assistant, and its
// content. Fields adds what else a chat template reads, such as tool_calls.
type Message = chat.Message

// SamplingParams configure the generation of an answer. The zero value takes the most likely token
// until the model ends its answer, 256 tokens at most.
type SamplingParams struct {
	// Adapter is the name of a loaded adapter. Empty means the model alone.
	Adapter string
	// MaxTokens of the answer. Zero means 256.
	MaxTokens int
	// Temperature divides the logits. Zero takes the most likely token.
	Temperature float64
	// TopK and TopP keep the most likely tokens alone. Zero keeps all.
	TopK int
	TopP float64
	// MinP keeps tokens that are at least MinP times as likely as the most likely one.
	MinP float64
	// Seed selects the random draws: equal seeds give equal answers.
	Seed uint64
	// Stop are texts that end the answer, which does not contain them.
	Stop []string
	// Schema is a JSON Schema that the answer must match. Nil allows any text. An answer that
	// MaxTokens ends is the beginning of one that matches.
	Schema json.RawMessage
}

const defaultMaxTokens = 256

// Chat generates the answer to a conversation and yields its text piece by piece. Iteration
// ends after an error; leaving the loop ends the generation.
func (m *Model) Chat(ctx context.Context, messages []Message, p SamplingParams) iter.Seq2[string, error] {
	return m.stream(ctx, p, func(e *batching.Engine) ([]int32, error) {
		template, err := m.templateOf(ctx, e, p.Adapter)
		if err != nil {
			return nil, err
		}
		text, err := template.RenderContext(ctx, messages, chat.Options{AddGenerationPrompt: true})
		if err != nil {
			return nil, err
		}
		return m.tokenizer.Encode(text, false) // templates write special tokens themselves
	})
}

// Complete generates the text that follows a prompt.
func (m *Model) Complete(ctx context.Context, prompt string, p SamplingParams) (string, error) {
	var b strings.Builder
	for text, err := range m.stream(ctx, p, func(*batching.Engine) ([]int32, error) { return m.tokenizer.Encode(prompt, true) }) {
		if err != nil {
			return b.String(), err
		}
		b.WriteString(text)
	}
	return b.String(), nil
}

// templateOf returns the chat template in the folder of an adapter, or that of the model.
func (m *Model) templateOf(ctx context.Context, e *batching.Engine, adapter string) (*chat.Template, error) {
	if adapter != "" && m.options.ChatTemplate == "" {
		lease, err := e.Adapters().Acquire(ctx, adapter)
		if err != nil {
			return nil, err
		}
		defer lease.Release()
		if own := lease.Version().State().Template; own != nil {
			return own.WithDefaultTokens(m.tokenizer.SpecialTokens()), nil
		}
	}
	if m.template == nil {
		return nil, fmt.Errorf("the model has %w; Complete needs none", chat.ErrNoTemplate)
	}
	return m.template, nil
}

// stream generates the continuation of the tokens that prompt returns.
func (m *Model) stream(ctx context.Context, p SamplingParams, prompt func(*batching.Engine) ([]int32, error)) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		fail := func(err error) { yield("", fmt.Errorf("lorafuse: %w", err)) }
		e, err := m.open(ctx)
		if err != nil {
			fail(err)
			return
		}
		o, err := m.generateOptions(p)
		if err != nil {
			fail(err)
			return
		}
		ids, err := prompt(e)
		if err != nil {
			fail(err)
			return
		}
		for t, err := range e.Submit(ctx, batching.Request{Prompt: ids, Adapter: p.Adapter, Answers: []generate.GenerateOptions{o}}) {
			if err != nil {
				fail(err)
				return
			}
			if t.Text != "" && !yield(t.Text, nil) {
				return
			}
		}
	}
}

func (m *Model) generateOptions(p SamplingParams) (o generate.GenerateOptions, err error) {
	o = generate.GenerateOptions{
		MaxNewTokens: p.MaxTokens, Stop: p.Stop, Decoder: m.tokenizer.NewStream(true), EOS: m.tokenizer.StopTokens(m.model.Config.EOS),
		Sampler: sample.Sampler{Temperature: p.Temperature, TopK: p.TopK, TopP: p.TopP, MinP: p.MinP, Seed: p.Seed},
	}
	if p.MaxTokens < 0 {
		return o, fmt.Errorf("%w: MaxTokens: found %d, expected 0 or more", ErrOption, p.MaxTokens)
	}
	if p.MaxTokens == 0 {
		o.MaxNewTokens = defaultMaxTokens
	}
	if err := o.Sampler.Validate(); err != nil {
		return o, err
	}
	if p.Schema != nil {
		o.Grammar, err = m.grammar(p.Schema)
	}
	return o, err
}

// grammar compiles a JSON Schema for one answer.
func (m *Model) grammar(schema []byte) (*constrain.Matcher, error) {
	g, err := constrain.Schema(schema)
	if err != nil {
		return nil, fmt.Errorf("option Schema: %w", err)
	}
	v, err := m.vocabulary()
	if err != nil {
		return nil, err
	}
	return g.Matcher(v)
}

// newVocabulary prepares the tokens of a tokenizer for grammars.
func newVocabulary(t *tokenizer.Tokenizer) (*constrain.Vocabulary, error) {
	tokens, err := t.TokenBytes()
	if err != nil {
		return nil, err
	}
	return constrain.NewVocabulary(tokens)
}
