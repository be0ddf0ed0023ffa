package tokenizer

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
)

var (
	// ErrRows reports a tokenizer with more tokens than the model has embeddings.
	ErrRows = errors.New("more tokens than embeddings")
	// ErrTokens reports a tokenizer that gives texts other token ids than that of the model.
	ErrTokens = errors.New("other tokens than the model's tokenizer")
)

// LoadAdapted reads the tokenizer of an adapter, or of its model if the adapter's folder has
// none. Trainers such as TRL save a tokenizer with the tokens that they added. LoadAdapted
// fails with [ErrRows] if the adapter's tokenizer has ids of rows or more, the number of the
// model's embeddings.
func LoadAdapted(adapter, model string, rows int) (*Tokenizer, error) {
	if adapter == "" {
		return Load(model)
	}
	file := filepath.Join(adapter, tokenizerFile)
	if _, err := os.Stat(file); errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) { // an adapter may be one file
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

// sample is a text that tokenizers with other rules split differently: it has runs of spaces,
// digits, contractions, capitals, composed and decomposed letters, and several scripts.
const sample = " The  Quick fox's\n\n\tcafé cafe\u0301 ﬁ 12345 3.14, x_y != <z/> Привет 数学 🙂 "

// CheckSame fails with [ErrTokens] and the first difference if t has other tokens or other ids than
// u, or splits a sample text differently. It does not compare the special tokens that are added
// around a text, and t may have a padding token that u lacks, which many trainers add.
func (t *Tokenizer) CheckSame(u *Tokenizer) error {
	for id := range max(t.lastID(), u.lastID()) + 1 {
		if _, ok := u.Token(id); !ok && id == t.pad {
			continue
		}
		if a, b := t.name(id), u.name(id); a != b {
			return fmt.Errorf("%w: id %d is %s, expected %s", ErrTokens, id, a, b)
		}
	}
	a, err := t.Encode(sample, false)
	b, errU := u.Encode(sample, false)
	if (err == nil) != (errU == nil) || !slices.Equal(a, b) {
		return fmt.Errorf("%w: the text %q has ids %v, expected %v", ErrTokens, sample, a, b)
	}
	return nil
}

// name returns a token for messages.
func (t *Tokenizer) name(id int32) string {
	if token, ok := t.Token(id); ok {
		return strconv.Quote(token)
	}
	return "no token"
}
