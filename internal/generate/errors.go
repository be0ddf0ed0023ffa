package generate

import "errors"

// Errors that this package wraps.
var (
	// ErrTooLong reports a text that exceeds the model's limit or the configured maximum
	// length.
	ErrTooLong = errors.New("too many tokens")
	// ErrToken reports a token id outside of the model's vocabulary, or an empty list of
	// tokens.
	ErrToken = errors.New("bad token")
	// ErrOption reports settings that contradict each other or are out of range.
	ErrOption = errors.New("bad option")
)
