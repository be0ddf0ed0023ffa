package tuning

import (
	"errors"
	"fmt"

	"github.com/lorafuse/lorafuse/internal/serve/store"
)

// Kinds of errors, for errors.Is.
var (
	ErrInvalid  = errors.New("invalid request")
	ErrNotFound = errors.New("not found")
	ErrState    = errors.New("the state forbids it")
	ErrTooLarge = errors.New("file too large")
	ErrNoSpace  = store.ErrNoSpace
	ErrClosed   = store.ErrClosed
	ErrInUse    = store.ErrInUse
	ErrModel    = errors.New("the folder is that of another model")
)

// Error is an error that may be reported to a client.
type Error struct {
	Kind    error  // one of the sentinel errors
	Param   string // the invalid parameter, if any
	Code    string // machine-readable code
	Message string
}

// Error returns the message.
func (e *Error) Error() string { return e.Message }

// Unwrap returns the kind of the error.
func (e *Error) Unwrap() error { return e.Kind }

// invalid returns an error about a request field.
func invalid(param, format string, args ...any) *Error {
	return &Error{Kind: ErrInvalid, Param: param, Message: param + ": " + fmt.Sprintf(format, args...)}
}

// written converts a write error. A full disk gets an error of its own.
func written(err error) error {
	if err := store.Full(err); errors.Is(err, ErrNoSpace) {
		if known, ok := errors.AsType[*Error](err); ok {
			return known
		}
		return &Error{Kind: ErrNoSpace, Code: "no_space", Message: ErrNoSpace.Error()}
	}
	return err
}
