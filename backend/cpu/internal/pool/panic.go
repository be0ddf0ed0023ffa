package pool

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"
)

// Panic carries the panic value of a task to the goroutine that called Run.
type Panic struct {
	Value any    // what the task gave to panic; nil if it called runtime.Goexit
	Stack []byte // where the task did so
}

// newPanic returns a Panic for the recovered value. A Panic from a nested run is returned unchanged, since its stack
// is the relevant one.
func newPanic(v any) *Panic {
	if p, ok := v.(*Panic); ok {
		return p
	}
	return &Panic{Value: v, Stack: debug.Stack()}
}

// Error returns the value and the stack of the task.
func (p *Panic) Error() string {
	if p.Value == nil {
		return "pool: a task called runtime.Goexit"
	}
	return fmt.Sprintf("pool: a task panicked: %v\n%s", p.Value, p.Stack)
}

// Unwrap returns the value if it is an error.
func (p *Panic) Unwrap() error {
	err, _ := p.Value.(error)
	return err
}

// insideTask reports whether a frame of this goroutine is a task that shares
// workers. It costs microseconds and is asked only before a wait.
func insideTask() bool {
	var pcs [64]uintptr
	for skip := 2; ; skip += len(pcs) {
		n := runtime.Callers(skip, pcs[:])
		frames := runtime.CallersFrames(pcs[:n])
		for more := n > 0; more; {
			var f runtime.Frame
			f, more = frames.Next()
			if strings.HasSuffix(f.Function, "pool.(*Pool).call") {
				return true
			}
		}
		if n < len(pcs) {
			return false
		}
	}
}
