package lorafuse

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"strings"

	"github.com/lorafuse/lorafuse/internal/generate"
	"github.com/lorafuse/lorafuse/internal/generate/constrain"
	"github.com/lorafuse/lorafuse/internal/generate/sample"
	"github.com/lorafuse/lorafuse/internal/pretrained"
	"github.com/lorafuse/lorafuse/internal/serve/batching"
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

// Chat generates the answer to a conversation and yields its text piece by piece. Iteration
// ends after an error; leaving the loop ends the generation.
func (m *Model) Chat(ctx context.Context, messages []Message, p SamplingParams) iter.Seq2[string, error] {
	return m.stream(ctx, p, func(e *batching.Group) ([]int32, error) {
		texts, err := m.textsOf(ctx, e, p.Adapter)
		if err != nil {
			return nil, err
		}
		ids, err := texts.Chat(ctx, messages)
		if errors.Is(err, chat.ErrNoTemplate) {
			err = fmt.Errorf("%w; Complete needs none", err)
		}
		return ids, err
	})
}

// Complete generates the text that follows a prompt. The prompt is tokenized with the special
// tokens that the model expects, but without a chat template; use Chat for conversations. After an
// error, Complete also returns the text generated so far.
func (m *Model) Complete(ctx context.Context, prompt string, p SamplingParams) (string, error) {
	var b strings.Builder
	for text, err := range m.stream(ctx, p, func(*batching.Group) ([]int32, error) { return m.texts.Prompt(prompt, true) }) {
		if err != nil {
			return b.String(), err
		}
		b.WriteString(text)
	}
	return b.String(), nil
}

// textsOf returns texts with the chat template in the folder of an adapter, or that of the model.
func (m *Model) textsOf(ctx context.Context, e *batching.Group, adapter string) (*pretrained.Texts, error) {
	if adapter == "" || m.options.ChatTemplate != "" {
		return m.texts, nil
	}
	lease, err := e.Adapters().Acquire(ctx, adapter)
	if err != nil {
		return nil, err
	}
	defer lease.Release()
	return m.texts.With(lease.Version().State().Template), nil
}

// stream generates the continuation of the tokens that prompt returns.
func (m *Model) stream(ctx context.Context, p SamplingParams, prompt func(*batching.Group) ([]int32, error)) iter.Seq2[string, error] {
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
	if p.MaxTokens < 0 {
		return o, fmt.Errorf("%w: MaxTokens: found %d, expected 0 or more", ErrOption, p.MaxTokens)
	}
	sampler := sample.Sampler{Temperature: p.Temperature, TopK: p.TopK, TopP: p.TopP, MinP: p.MinP, Seed: p.Seed}
	if err := sampler.Validate(); err != nil {
		return o, err
	}
	var g *constrain.Grammar
	if p.Schema != nil {
		if g, err = constrain.Schema(p.Schema); err != nil {
			return o, fmt.Errorf("option Schema: %w", err)
		}
	}
	o, err = m.texts.Answer(g, true)
	o.MaxNewTokens, o.Stop, o.Sampler = cmp.Or(p.MaxTokens, generate.DefaultMaxNewTokens), p.Stop, sampler
	return o, err
}
