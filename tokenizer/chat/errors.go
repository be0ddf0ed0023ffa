package chat

import (
	"errors"
	"fmt"
)

var (
	// ErrNoTemplate reports a folder without a chat template.
	ErrNoTemplate = errors.New("no chat template")
	// ErrTemplate reports a template that cannot be parsed.
	ErrTemplate = errors.New("chat template")
	// ErrRender reports a template that failed for these messages.
	ErrRender = errors.New("chat template failed")
	// ErrRefused reports messages that the template rejects with raise_exception. It is
	// also an [ErrRender].
	ErrRefused = fmt.Errorf("%w: the template refuses the messages", ErrRender)
	// ErrLimit reports a template that exceeds the limit on work, on the size of texts and
	// values, or on their nesting. It is also an [ErrRender].
	ErrLimit = fmt.Errorf("%w: beyond the limit of a rendering", ErrRender)
	// ErrTooLong reports a text longer than [Options].MaxBytes. It is also an [ErrRender].
	ErrTooLong = fmt.Errorf("%w: the text is too long", ErrRender)
	// ErrSpans reports a conversation whose answers cannot be located in the rendered
	// text.
	ErrSpans = errors.New("cannot locate the answers in the rendered chat")
)

func syntaxError(line int, format string, args ...any) error {
	return fmt.Errorf("%w: line %d: %s", ErrTemplate, line, fmt.Sprintf(format, args...))
}

// typeError returns the error of an operation on values of unsupported types.
func typeError(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrRender, fmt.Sprintf(format, args...))
}

// atLine adds the line to an error without one.
func atLine(line int, err error) error {
	var placed *placedError
	if err == nil || errors.As(err, &placed) || isJump(err) {
		return err
	}
	return &placedError{line, err}
}

type placedError struct {
	line int
	err  error
}

func (e *placedError) Error() string { return fmt.Sprintf("%v (template line %d)", e.err, e.line) }
func (e *placedError) Unwrap() error { return e.err }
