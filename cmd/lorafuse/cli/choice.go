package cli

import (
	"encoding"
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/pflag"

	"github.com/lorafuse/lorafuse/internal/suggest"
)

// errWord is the error for a flag value that is not one of the permitted words.
var errWord = errors.New("not such a word")

// word is the value of a flag that has a type of its own, which reads its text: it
// is text nowhere else.
type word struct {
	to    encoding.TextUnmarshaler
	text  string
	words []string // permitted words; nil if only to can decide
	takes string   // description of the permitted values
}

// choose adds a flag that accepts one of the given words. Its default is the word without; if that is empty, to keeps
// its value.
func choose(flags *pflag.FlagSet, to encoding.TextUnmarshaler, name, without string, words []string, usage string) {
	w := &word{to: to, words: words}
	if without != "" && w.Set(without) != nil {
		panic("cli: --" + name + " cannot be " + without)
	}
	flags.Var(w, name, usage)
}

func (w *word) Set(text string) error {
	if w.words != nil && !slices.Contains(w.words, text) {
		return fmt.Errorf("%w: %s", errWord, suggest.Expected(text, w.words))
	}
	if err := w.to.UnmarshalText([]byte(text)); err != nil {
		return fmt.Errorf("%w: found %q, expected %s", errWord, text, w.takes)
	}
	w.text = text
	return nil
}

func (w *word) String() string { return w.text }

// Type returns the value's name in help.
func (w *word) Type() string {
	if w.words == nil {
		return "bytes"
	}
	return "word"
}
