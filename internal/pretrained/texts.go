package pretrained

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/lorafuse/lorafuse/internal/generate"
	"github.com/lorafuse/lorafuse/internal/generate/constrain"
	"github.com/lorafuse/lorafuse/tokenizer"
	"github.com/lorafuse/lorafuse/tokenizer/chat"
)

// ErrEmpty is the error for a prompt without tokens.
var ErrEmpty = errors.New("the prompt is empty")

// Texts converts between the texts and the tokens of a language model.
type Texts struct {
	*tokenizer.Tokenizer
	Template *chat.Template // nil if there is none

	eos        []int32                               // tokens that end an answer
	vocabulary func() (*constrain.Vocabulary, error) // prepared by the first grammar
}

// Texts reads the tokenizer and the chat template of the model. Files in the folder of the adapter
// take precedence over the model's. If file is not empty, it is the template, and option is its name
// in errors.
func (m *Model) Texts(option, file string) (*Texts, error) {
	tok, err := m.Tokenizer()
	if err != nil {
		return nil, err
	}
	dirs := []string{m.Dir}
	if m.Adapter != nil {
		dirs = []string{m.Adapter.Dir, m.Dir}
	}
	template, err := chat.Find(file, tok.SpecialTokens(), dirs...)
	if err != nil && file != "" {
		err = fmt.Errorf("%s: %w", option, err)
	}
	if err != nil {
		return nil, err
	}
	return &Texts{tok, template, tok.StopTokens(m.Config.EOS), sync.OnceValues(func() (*constrain.Vocabulary, error) {
		tokens, err := tok.TokenBytes()
		if err != nil {
			return nil, err
		}
		return constrain.NewVocabulary(tokens)
	})}, nil
}

// With returns t with another chat template, if it is not nil.
func (t Texts) With(template *chat.Template) *Texts {
	if template != nil {
		t.Template = template.WithDefaultTokens(t.SpecialTokens())
	}
	return &t
}

// Prompt returns the tokens of a text to continue, with the special tokens that the model expects
// around a text if special is set.
func (t *Texts) Prompt(text string, special bool) ([]int32, error) {
	ids, err := t.Encode(text, special)
	if err != nil {
		return nil, fmt.Errorf("prompt: %w", err)
	}
	if len(ids) == 0 {
		return nil, fmt.Errorf("%w, and this model has no token that begins a text", ErrEmpty)
	}
	return ids, nil
}

// Chat returns the tokens of a conversation up to the beginning of the answer. It fails with
// chat.ErrNoTemplate if the model has no chat template.
func (t *Texts) Chat(ctx context.Context, messages []chat.Message, tools ...any) ([]int32, error) {
	if t.Template == nil {
		return nil, fmt.Errorf("the model has %w", chat.ErrNoTemplate)
	}
	text, err := t.Template.RenderContext(ctx, messages, chat.Options{AddGenerationPrompt: true, Tools: tools})
	if err != nil {
		return nil, err
	}
	ids, err := t.Encode(text, false) // templates write special tokens themselves
	if err != nil {
		return nil, fmt.Errorf("chat: %w", err)
	}
	if len(ids) == 0 {
		return nil, fmt.Errorf("%w: the chat template makes nothing of these messages", ErrEmpty)
	}
	return ids, nil
}

// Answer returns options to generate one answer, without sampling and limits. A nil grammar means
// any text. With skipSpecial the text of the answer has no special tokens.
func (t *Texts) Answer(g *constrain.Grammar, skipSpecial bool) (o generate.GenerateOptions, err error) {
	o = generate.GenerateOptions{Decoder: t.NewStream(skipSpecial), EOS: t.eos}
	if g == nil {
		return o, nil
	}
	v, err := t.vocabulary()
	if err == nil {
		o.Grammar, err = g.Matcher(v)
	}
	return o, err
}
