package generate

import "errors"

// Errors that this package wraps.
var (
	// ErrTooLong: a text is longer than the model, or what was made room for, can take.
	ErrTooLong = errors.New("too many tokens")
	// ErrToken: a token id that the model's vocabulary does not have, or none at all.
	ErrToken = errors.New("bad token")
	// ErrOption: settings that contradict each other or are out of their range.
	ErrOption = errors.New("bad option")
)
