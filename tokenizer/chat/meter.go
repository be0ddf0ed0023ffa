package chat

import (
	"context"
	"errors"
	"fmt"
	"math"
)

// meter counts what one rendering does, so that no template can take the process with it.
// The limits grow with what is rendered: real templates stay far below them, however long
// the conversation.
//
// The first limit that is passed stays in err. Functions that give no error of their own
// give nothing from then on, and the expression they belong to fails.
type meter struct {
	steps, maxSteps int64 // statements, operators and calls
	bytes, maxBytes int64 // made or read: text, items of lists, entries of dictionaries
	depth, maxDepth int   // of values within values, where they are walked
	calls           int   // of macros and recursive loops
	open            []*namespace
	ctx             context.Context // nil: the rendering cannot be cancelled
	err             error
}

// limits are what a rendering may do before the conversation adds to it.
type limits struct{ steps, bytes int64 }

var usual = limits{steps: 10_000_000, bytes: 1 << 28}

const (
	stepsPerByte = 64 // of the conversation
	bytesPerByte = 1 << 10

	maxCalls  = 200  // macros and recursive loops within each other
	maxValues = 1000 // lists and dictionaries within each other
)

// What things count for beside the text in them.
const (
	itemBytes  = 16  // of a list
	partBytes  = 48  // a text or a list of its own, in a list
	entryBytes = 128 // of a dictionary
	scopeBytes = 64
)

// meter has the limits for a conversation of so many bytes.
func (l limits) meter(size int64) *meter {
	return &meter{maxSteps: l.steps + stepsPerByte*size, maxBytes: l.bytes + bytesPerByte*size, maxDepth: maxValues}
}

// unlimited is for values that no template has made.
func unlimited() *meter {
	return &meter{maxSteps: math.MaxInt64, maxBytes: math.MaxInt64, maxDepth: math.MaxInt}
}

// sizeOf is about how many bytes a value takes that comes from outside of the template.
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

// fail keeps the first error.
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

// spend counts n things of so many bytes each, before they are made.
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

// read counts texts that are looked through.
func (in *meter) read(texts ...string) error {
	for _, s := range texts {
		_ = in.spend(int64(len(s)), 1)
	}
	return in.err
}

// enter goes into a value; leave comes back.
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

// at adds the line to an error, or to that of a limit that has been passed.
func (in *meter) at(line int, err error) error {
	if in.err != nil && !errors.Is(err, ErrLimit) {
		err = in.err
	}
	return atLine(line, err)
}

// brief is the beginning of a text, as error messages show it.
func brief(s string) string {
	const most = 80
	if len(s) > most {
		return quote(s[:most]) + "…"
	}
	return quote(s)
}
