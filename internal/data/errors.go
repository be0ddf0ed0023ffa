package data

import (
	"errors"
	"fmt"
)

// Kinds of errors in a dataset, for errors.Is.
var (
	ErrOption   = errors.New("invalid data option")
	ErrFormat   = errors.New("not in the format of the file")
	ErrUTF8     = errors.New("not valid UTF-8")
	ErrKeys     = errors.New("the line's keys name no kind of row")
	ErrIgnored  = errors.New("a key that means something and would be ignored")
	ErrMixed    = errors.New("several kinds of rows in one file")
	ErrEmpty    = errors.New("empty data set")
	ErrTooLong  = errors.New("row longer than max_length")
	ErrNoTarget = errors.New("row without a token that carries loss")
	ErrLabel    = errors.New("not a label of the problem")
	ErrTokenID  = errors.New("token id outside of the vocabulary")
)

// Error is an error in a dataset.
type Error struct {
	Place   string // file, or file:line
	Problem string // found and expected
	Kind    error  // one of the sentinel errors
}

// Error returns a single line: place: problem.
func (e *Error) Error() string {
	if e.Place == "" {
		return e.Problem
	}
	return e.Place + ": " + e.Problem
}

// Unwrap returns the kind of the error.
func (e *Error) Unwrap() error { return e.Kind }

// problem returns an Error to which the caller adds the place.
func problem(kind error, format string, args ...any) error {
	return &Error{Problem: fmt.Sprintf(format, args...), Kind: kind}
}

// at adds the place to an error that has none: file:line, or only the file if line is 0.
func at(file string, line int, err error) error {
	place := file
	if line > 0 {
		place = fmt.Sprintf("%s:%d", file, line)
	}
	if e, ok := errors.AsType[*Error](err); ok {
		if e.Place != "" {
			return err
		}
		return &Error{Place: place, Problem: e.Problem, Kind: e.Kind}
	}
	return fmt.Errorf("%s: %w", place, err)
}

// within adds a part of a row, such as a column, to an error that has no place.
func within(part string, err error) error {
	if e, ok := errors.AsType[*Error](err); ok && e.Place == "" {
		return &Error{Problem: part + ": " + e.Problem, Kind: e.Kind}
	}
	return err
}
