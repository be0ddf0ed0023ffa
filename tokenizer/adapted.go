package tokenizer

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// ErrRows reports a tokenizer with more tokens than the model has embeddings.
var ErrRows = errors.New("more tokens than embeddings")

// LoadAdapted reads the tokenizer of an adapter, or of its model if the adapter's folder has
// none. Trainers such as TRL save a tokenizer with the tokens that they added. LoadAdapted
// fails with [ErrRows] if the adapter's tokenizer has ids of rows or more, the number of the
// model's embeddings.
func LoadAdapted(adapter, model string, rows int) (*Tokenizer, error) {
	if adapter == "" {
		return Load(model)
	}
	file := filepath.Join(adapter, tokenizerFile)
	if _, err := os.Stat(file); errors.Is(err, fs.ErrNotExist) {
		return Load(model)
	}
	t, err := Load(adapter)
	if err != nil {
		return nil, err
	}
	if last := t.lastID(); int(last) >= rows {
		token, _ := t.Token(last)
		return nil, fmt.Errorf("tokenizer %s: %w: token %q has id %d, the model has %d embeddings: the adapter is for a model with resized embeddings", file, ErrRows, token, last, rows)
	}
	return t, nil
}

// lastID returns the largest id of a token.
func (t *Tokenizer) lastID() int32 {
	last := int32(t.model.size()) - 1
	for id := range t.added.byID {
		last = max(last, id)
	}
	return last
}

// SameTokens reports whether two tokenizers have the same tokens with the same ids.
func (t *Tokenizer) SameTokens(u *Tokenizer) bool {
	last := t.lastID()
	if last != u.lastID() {
		return false
	}
	for id := range last + 1 {
		a, inT := t.Token(id)
		b, inU := u.Token(id)
		if a != b || inT != inU {
			return false
		}
	}
	return true
}
