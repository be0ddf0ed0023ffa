package tokenizer

import (
	"errors"
	"fmt"
	"strings"
)

var (
	// ErrFormat reports a tokenizer file that is not what it should be.
	ErrFormat = errors.New("malformed tokenizer file")
	// ErrUnsupported reports a tokenizer component or option that this package lacks.
	ErrUnsupported = errors.New("unsupported tokenizer feature")
	// ErrInvalidUTF8 reports text that is not valid UTF-8.
	ErrInvalidUTF8 = errors.New("text is not valid UTF-8")
	// ErrTokenID reports an id that can never be a token: a negative one.
	ErrTokenID = errors.New("invalid token id")
	// ErrRoom reports a limit that special tokens alone exceed.
	ErrRoom = errors.New("no room for special tokens")
	// ErrUnknownText reports text that the vocabulary cannot express and that has no
	// unknown token to stand for it.
	ErrUnknownText = errors.New("text outside the vocabulary")
)

// unsupported names the component that is not supported and those that are.
func unsupported(kind, name string, known ...string) error {
	return fmt.Errorf("%w: %s %q; supported are %s", ErrUnsupported, kind, name, strings.Join(known, ", "))
}

func malformed(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrFormat, fmt.Sprintf(format, args...))
}
