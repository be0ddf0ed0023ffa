package tuning

import (
	"errors"
	"fmt"
	"syscall"
)

// What can be wrong with what is asked for, for errors.Is.
var (
	ErrInvalid  = errors.New("invalid request")
	ErrNotFound = errors.New("not found")
	ErrState    = errors.New("the state forbids it")
	ErrTooLarge = errors.New("file too large")
	ErrNoSpace  = errors.New("the disk is full")
	ErrClosed   = errors.New("closed")
	ErrInUse    = errors.New("the folder belongs to another server")
	ErrModel    = errors.New("the folder is that of another model")
)

// Error is what a client can be told.
type Error struct {
	Kind    error  // one of the sentinel errors
	Param   string // the field that is to blame, if one is
	Code    string // a word for programs
	Message string
}

// Error is the message.
func (e *Error) Error() string { return e.Message }

// Unwrap is the kind of the error.
func (e *Error) Unwrap() error { return e.Kind }

// invalid blames a field of a request.
func invalid(param, format string, args ...any) *Error {
	return &Error{Kind: ErrInvalid, Param: param, Message: param + ": " + fmt.Sprintf(format, args...)}
}

// written is an error of writing, which is told apart where the disk is full.
func written(err error) error {
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) || errors.Is(err, syscall.EFBIG) {
		return &Error{Kind: ErrNoSpace, Code: "no_space", Message: "the disk of the server is full: nothing was kept"}
	}
	return err
}
