package config

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
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

// Errors are several problems of a configuration, in the order of the file.
type Errors []*Error

// Error returns the problems on a single line.
func (e Errors) Error() string {
	texts := make([]string, len(e))
	for i, one := range e {
		texts[i] = one.Error()
	}
	return strings.Join(texts, "; ")
}

// Unwrap returns the problems, for errors.Is and errors.As.
func (e Errors) Unwrap() []error {
	all := make([]error, len(e))
	for i, one := range e {
		all[i] = one
	}
	return all
}

// mostErrors bounds the number of problems that are listed.
const mostErrors = 100

// add appends the problems of an error, and reports whether more are wanted.
func (e *Errors) add(err error) bool {
	switch err := err.(type) {
	case nil:
	case *Error:
		*e = append(*e, err)
	case Errors:
		*e = append(*e, err...)
	default:
		*e = append(*e, &Error{Problem: err.Error(), Kind: err})
	}
	return len(*e) < mostErrors
}

// err returns nil, the only problem, or all of them by line.
func (e Errors) err() error {
	switch len(e) {
	case 0:
		return nil
	case 1:
		return e[0]
	}
	slices.SortStableFunc(e, func(a, b *Error) int { return a.line() - b.line() })
	if len(e) >= mostErrors {
		last := e[mostErrors-1]
		e = append(slices.Clone(e[:mostErrors-1]), &Error{last.Place, "", fmt.Sprintf("problem %d; later ones are not listed", mostErrors), last.Kind})
	}
	return e
}

// line returns the line of the place, or 0 if it has none.
func (e *Error) line() int {
	n, err := strconv.Atoi(e.Place[strings.LastIndexByte(e.Place, ':')+1:])
	if err != nil {
		return 0
	}
	return n
}
