package cli

import (
	"errors"
	"sync/atomic"
	"syscall"
)

// work distinguishes failures during a task from errors before it started. A missing or unreadable file is invalid
// input before the start, but a failure once all inputs have been read and checked.
type work struct{ begun atomic.Bool }

// failed returns err, marked as a failure if the system reported it while the task was running.
func (w *work) failed(err error) error {
	if !w.begun.Load() {
		return err
	}
	return underWay(err)
}

// underWay marks an error of work that has started, like failed.
func underWay(err error) error {
	if _, ok := errors.AsType[syscall.Errno](err); ok {
		return &failure{err}
	}
	return err
}
