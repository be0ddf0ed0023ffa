package cli

import (
	"fmt"
	"os"

	"github.com/lorafuse/lorafuse/generate/constrain"
	"github.com/lorafuse/lorafuse/tokenizer"
)

// grammar is what the flags keep answers to, or nil.
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

// shape is what answers of one model are kept to.
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

// matcher begins an answer; nil where answers are free.
func (s *shape) matcher() (*constrain.Matcher, error) {
	if s == nil {
		return nil, nil
	}
	return s.grammar.Matcher(s.vocabulary)
}
