package config

import (
	"errors"
	"strings"
	"unicode"
)

// Kinds of configuration errors, for errors.Is.
var (
	ErrSyntax     = errors.New("not a valid YAML configuration")
	ErrUnknownKey = errors.New("unknown key")
	ErrValue      = errors.New("invalid value")
	ErrMissing    = errors.New("required key missing")
	ErrConflict   = errors.New("keys contradict each other")
)

// Error is one problem of a configuration.
type Error struct {
	Place   string // file:line, or --set
	Key     string // dotted
	Problem string // found and expected values
	Kind    error  // one of the sentinel errors
}

// Error returns a single line: place: key: problem.
func (e *Error) Error() string {
	text := e.Problem
	if e.Key != "" {
		text = e.Key + ": " + text
	}
	if e.Place != "" {
		text = e.Place + ": " + text
	}
	// Keys and values of the file may hold line breaks.
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, text)
}

// Unwrap returns the kind of the error.
func (e *Error) Unwrap() error { return e.Kind }
