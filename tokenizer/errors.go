package tokenizer

import (
	"errors"
	"fmt"
	"strings"
)

var (
	// ErrFormat reports an invalid tokenizer file.
	ErrFormat = errors.New("malformed tokenizer file")
	// ErrUnsupported reports a tokenizer component or option that this package does
	// not support.
	ErrUnsupported = errors.New("unsupported tokenizer feature")
	// ErrInvalidUTF8 reports text that is not valid UTF-8.
	ErrInvalidUTF8 = errors.New("text is not valid UTF-8")
	// ErrTokenID reports an invalid token id, that is, a negative one.
	ErrTokenID = errors.New("invalid token id")
	// ErrRoom reports a length limit that the special tokens alone exceed.
	ErrRoom = errors.New("no room for special tokens")
	// ErrUnknownText reports text that the vocabulary cannot encode, if it has no
	// unknown token.
	ErrUnknownText = errors.New("text outside the vocabulary")
)

// unsupported returns an ErrUnsupported that names the component and lists the
// supported ones.
func unsupported(kind, name string, known ...string) error {
	return fmt.Errorf("%w: %s %q; supported are %s", ErrUnsupported, kind, name, strings.Join(known, ", "))
}

func malformed(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrFormat, fmt.Sprintf(format, args...))
}
