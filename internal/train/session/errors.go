package session

import (
	"errors"
	"fmt"
)

// Errors wrapped by calls. All other errors are independent of the arguments: they come
// from the device, the disk, or a context that has ended.
var (
	// ErrInput: data, a loss, settings or options that make no sense.
	ErrInput = errors.New("invalid input")
	// ErrDropped: the gradients since the last step were lost with a call that failed.
	ErrDropped = errors.New("gradients were dropped")
)

// invalid returns an ErrInput about what, for a message that begins with the package.
func invalid(what, format string, args ...any) error {
	return fmt.Errorf("%s: %w: %w", what, ErrInput, fmt.Errorf(format, args...))
}
