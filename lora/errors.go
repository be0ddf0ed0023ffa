package lora

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// Errors that this package wraps, for errors.Is.
var (
	// ErrConfig: a setting that is wrong in itself.
	ErrConfig = errors.New("bad adapter configuration")
	// ErrUnsupported: the package does not support the setting.
	ErrUnsupported = errors.New("not supported")
	// ErrNoTarget: the configuration targets no module of the model.
	ErrNoTarget = errors.New("no module is targeted")
	// ErrUnused: a name or a pattern of the configuration has no effect on the model.
	ErrUnused = errors.New("name or pattern without effect")

	// ErrUnmatched: a tensor of the file that belongs to no target.
	ErrUnmatched = errors.New("tensor matches no target")
	// ErrMissing: the file lacks a tensor of a target.
	ErrMissing = errors.New("tensor is missing")
	// ErrShape: a tensor of the wrong shape.
	ErrShape = errors.New("wrong shape")
	// ErrOrientation: a tensor that is transposed; it is an ErrShape too.
	ErrOrientation = errors.New("transposed")
	// ErrDType: the element type of a tensor is not floating-point.
	ErrDType = errors.New("wrong element type")
	// ErrNotFinite: a tensor with NaN or infinity in it.
	ErrNotFinite = errors.New("not finite")
	// ErrZeroB: a pair A, B has no effect because one of the two is all zero.
	ErrZeroB = errors.New("does nothing")

	// ErrName: a name that an adapter in a registry cannot have.
	ErrName = errors.New("bad name")
	// ErrTaken: the name is already used for something else.
	ErrTaken = errors.New("name is taken")
	// ErrNotFound: no adapter has that name, or it has no such version.
	ErrNotFound = errors.New("adapter not found")
	// ErrChanged: files were modified, replaced or removed.
	ErrChanged = errors.New("files have changed")
	// ErrFull: no room for another adapter, because all present ones are in use or
	// pinned.
	ErrFull = errors.New("no room")
	// ErrClosed: a registry that is closed.
	ErrClosed = errors.New("registry is closed")
)

var (
	errNotFiniteAlpha = errors.New("alpha must be a finite number")
	errZeroAlpha      = errors.New("alpha is 0: the adapter would do nothing")
)

// configError returns an ErrConfig about one key.
func configError(key, format string, args ...any) error {
	return fieldError(ErrConfig, key, format, args...)
}

// unsupported returns an ErrUnsupported about one key.
func unsupported(key, format string, args ...any) error {
	return fieldError(ErrUnsupported, key, format, args...)
}

func fieldError(kind error, key, format string, args ...any) error {
	if key != "" {
		key = " " + key + ":"
	}
	return fmt.Errorf("lora: %w:%s %w", kind, key, fmt.Errorf(format, args...))
}

func quoted(s string) string { return strconv.Quote(s) }

// list shows names, at most eight of them.
func list(names []string) string {
	var b strings.Builder
	b.WriteByte('[')
	for i, n := range names {
		if i == 8 {
			fmt.Fprintf(&b, " … %d more", len(names)-i)
			break
		}
		if i > 0 {
			b.WriteByte(' ')
		}
		b.WriteString(quoted(n))
	}
	b.WriteByte(']')
	return b.String()
}
