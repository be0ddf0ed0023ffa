//go:build cgo && (darwin || (metal && metalfake))

package metal

import (
	"errors"
	"fmt"
	"strings"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/internal/bytesize"
)

// The ways in which commands fail.
var (
	errDevice     = errors.New("the device has failed")
	errMemory     = errors.New("the device has no memory for a command")
	errTimeout    = errors.New("a command took too long")
	errDisplay    = errors.New("a command delayed the display")
	errVictim     = errors.New("the device was reset because of another program's command, or of an earlier one")
	errIgnored    = errors.New("the system ignores commands of this process after earlier errors")
	errBackground = errors.New("the system refuses commands of a process in the background")
)

// failures lists the ways in which a command fails, with the code in Metal's error domain, or 0, and the name in the
// driver's text. Such a text is "Impacting Interactivity
// (0000000e:kIOGPUCommandBufferCallbackErrorImpactingInteractivity)". A name takes precedence, since several of them
// share Metal's code for internal errors.
var failures = []struct {
	code int
	name string
	err  error
}{
	{2, "CallbackErrorTimeout", errTimeout},
	{0, "CallbackErrorHang", errTimeout},
	{14, "CallbackErrorImpactingInteractivity", errDisplay},
	{8, "CallbackErrorOutOfMemory", errMemory},
	{0, "CallbackErrorInnocentVictim", errVictim},
	{4, "CallbackErrorSubmissionsIgnored", errIgnored},
	{7, "CallbackErrorBackgroundExecutionNotPermitted", errBackground},
}

// failureOf returns the error of a command that ended with a code of Metal's error domain and a text.
func failureOf(code int, text error) error {
	way := errDevice
	for _, f := range failures {
		if strings.Contains(text.Error(), f.name) {
			return fmt.Errorf("%w: %w", f.err, text)
		}
		if code == f.code {
			way = f.err
		}
	}
	return fmt.Errorf("%w: %w", way, text)
}

// stopped reports whether a command was stopped because of its duration.
func stopped(err error) bool { return errors.Is(err, errTimeout) || errors.Is(err, errDisplay) }

// Explain adds the meaning of a failed command, and a remedy.
func (r runner) Explain(err error) error {
	shorter := fmt.Sprintf("set %s below %g, close other programs that use the GPU, and connect the power adapter", EnvCommand, 1e3*r.pace.limit)
	switch {
	case stopped(err):
		return fmt.Errorf("metal: %w: %w; %s", backend.ErrTimeout, err, shorter)
	case errors.Is(err, errIgnored):
		return fmt.Errorf("metal: %w: %w; restart the program; if it happens again, %s", backend.ErrLost, err, shorter)
	case errors.Is(err, errVictim):
		return fmt.Errorf("metal: %w; run it again; if it happens often, close other programs that use the GPU", err)
	case errors.Is(err, errBackground):
		return fmt.Errorf("metal: %w; run it in a session that may use the display", err)
	case errors.Is(err, errDevice):
		return fmt.Errorf("metal: %w: %w", backend.ErrLost, err)
	case errors.Is(err, errMemory):
		return fmt.Errorf("metal: %w: %w; the working set of the device is %s, weights in mapped files included: use fewer tokens, a shorter context or quantized weights, or close other programs",
			backend.ErrOutOfMemory, err, bytesize.Binary(r.traits.workingSet))
	}
	return fmt.Errorf("metal: %w", err)
}
