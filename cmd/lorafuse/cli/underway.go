package cli

import (
	"errors"
	"sync/atomic"
	"syscall"
)

// work tells what fails while it is under way from what could not begin. A file
// that is missing or may not be read is wrong input before, and a failure when
// all that was given has been read and checked.
type work struct{ begun atomic.Bool }

// failed is err, a failure where the system said it under way.
func (w *work) failed(err error) error {
	if !w.begun.Load() {
		return err
	}
	return underWay(err)
}

// underWay is failed of work that has begun.
func underWay(err error) error {
	if _, ok := errors.AsType[syscall.Errno](err); ok {
		return &failure{err}
	}
	return err
}
