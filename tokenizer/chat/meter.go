package chat

import (
	"context"
	"errors"
	"fmt"
	"math"
)

// meter limits the work and memory of one rendering, so that no template can bring the
// process down. The limits grow with the size of the conversation, so real templates stay
// far below them.
//
// err keeps the first exceeded limit. Functions without an error result then return zero
// values, and the expression that calls them fails.
type meter struct {
	steps, maxSteps int64 // statements, operators and calls
	bytes, maxBytes int64 // allocated or read: text, list items, dictionary entries
	depth, maxDepth int   // nesting of values during a traversal
	calls           int   // nesting of macros and recursive loops
	open            []*namespace
	ctx             context.Context // nil if the rendering cannot be canceled
	err             error
}

// limits are the limits of a rendering without the contribution of the
// conversation.
type limits struct{ steps, bytes int64 }

var usual = limits{steps: 10_000_000, bytes: 1 << 28}

const (
	stepsPerByte = 64 // of the conversation
	bytesPerByte = 1 << 10

	maxCalls  = 200  // nested macros and recursive loops
	maxValues = 1000 // nested lists and dictionaries
)

// Cost of values in bytes, in addition to the text in them.
const (
	itemBytes  = 16  // per list item
	partBytes  = 48  // per text or list within a list
	entryBytes = 128 // per dictionary entry
	scopeBytes = 64
)

// meter returns a meter for a conversation of the given size in bytes.
func (l limits) meter(size int64) *meter {
	return &meter{maxSteps: l.steps + stepsPerByte*size, maxBytes: l.bytes + bytesPerByte*size, maxDepth: maxValues}
}

// unlimited returns a meter for values that do not come from a template.
func unlimited() *meter {
	return &meter{maxSteps: math.MaxInt64, maxBytes: math.MaxInt64, maxDepth: math.MaxInt}
}

// sizeOf returns the approximate size in bytes of a value from outside the template.
func sizeOf(v any) int64 {
	size := int64(itemBytes)
	switch v := v.(type) {
	case string:
		size += int64(len(v))
	case []any:
		for _, item := range v {
			size += sizeOf(item)
		}
	case *dict:
		for i := range v.keys {
			size += sizeOf(v.keys[i]) + sizeOf(v.values[i])
		}
	}
	return size
}

func limitError(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrLimit, fmt.Sprintf(format, args...))
}

// fail records the error, unless one is recorded, and returns the recorded one.
func (in *meter) fail(format string, args ...any) error {
	if in.err == nil {
		in.err = limitError(format, args...)
	}
	return in.err
}

func (in *meter) step() error {
	if in.steps++; in.steps > in.maxSteps {
		return in.fail("more than %d steps", in.maxSteps)
	}
	const often = 1 << 10
	if in.steps%often == 0 && in.ctx != nil && in.err == nil {
		in.err = in.ctx.Err()
	}
	return in.err
}

// spend counts n values of the given size each. Call it before allocating them.
func (in *meter) spend(n, each int64) error {
	if n > 0 {
		if n > (in.maxBytes-in.bytes)/each {
			in.bytes = in.maxBytes
			return in.fail("more than %d bytes of text and values", in.maxBytes)
		}
		in.bytes += n * each
	}
	return in.err
}

// read counts texts that are read.
func (in *meter) read(texts ...string) error {
	for _, s := range texts {
		_ = in.spend(int64(len(s)), 1)
	}
	return in.err
}

// enter begins the traversal of a value, leave ends it.
func (in *meter) enter() error {
	if in.depth++; in.depth > in.maxDepth {
		return in.fail("values nested deeper than %d", in.maxDepth)
	}
	return in.spend(1, itemBytes)
}

func (in *meter) leave() { in.depth-- }

func (in *meter) call() error {
	if in.calls++; in.calls > maxCalls {
		return in.fail("calls nested deeper than %d", maxCalls)
	}
	return in.spend(1, scopeBytes)
}

func (in *meter) back() { in.calls-- }

// at adds the line to err, or to the error of an exceeded limit.
func (in *meter) at(line int, err error) error {
	if in.err != nil && !errors.Is(err, ErrLimit) {
		err = in.err
	}
	return atLine(line, err)
}

// brief returns a text truncated for error messages.
func brief(s string) string {
	const most = 80
	if len(s) > most {
		return quote(s[:most]) + "…"
	}
	return quote(s)
}
