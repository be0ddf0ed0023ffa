package cli

import (
	"fmt"
	"os"

	"github.com/lorafuse/lorafuse/internal/generate/constrain"
	"github.com/lorafuse/lorafuse/tokenizer"
)

// grammar returns the grammar that the flags require of answers, or nil.
func (f *generateFlags) grammar() (*constrain.Grammar, error) {
	switch {
	case f.jsonObject:
		return constrain.JSON(), nil
	case f.schema == "":
		return nil, nil
	}
	raw, err := os.ReadFile(f.schema)
	if err != nil {
		return nil, fmt.Errorf("generate: --schema: %w", err)
	}
	g, err := constrain.Schema(raw)
	if err != nil {
		return nil, fmt.Errorf("generate: --schema %s: %w", f.schema, err)
	}
	return g, nil
}

// shape constrains the answers of one model.
type shape struct {
	grammar    *constrain.Grammar
	vocabulary *constrain.Vocabulary
}

// newShape joins a grammar and the tokens of a model; nil without a grammar.
func newShape(g *constrain.Grammar, t *tokenizer.Tokenizer) (*shape, error) {
	if g == nil {
		return nil, nil
	}
	tokens, err := t.TokenBytes()
	if err != nil {
		return nil, fmt.Errorf("generate: %w", err)
	}
	v, err := constrain.NewVocabulary(tokens)
	return &shape{g, v}, err
}

// matcher returns a matcher for a new answer, or nil if answers are unconstrained.
func (s *shape) matcher() (*constrain.Matcher, error) {
	if s == nil {
		return nil, nil
	}
	return s.grammar.Matcher(s.vocabulary)
}
