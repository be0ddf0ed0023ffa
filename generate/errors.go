package generate

import "errors"

// Errors that this package wraps.
var (
	// ErrTooLong reports a text that exceeds the model's limit or the configured maximum
	// length.
	ErrTooLong = errors.New("too many tokens")
	// ErrToken: a token id that the model's vocabulary does not have, or none at all.
	ErrToken = errors.New("bad token")
	// ErrOption: settings that contradict each other or are out of their range.
	ErrOption = errors.New("bad option")
)
