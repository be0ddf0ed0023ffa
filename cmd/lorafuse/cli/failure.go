package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"unicode"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/dist"
	"github.com/lorafuse/lorafuse/internal/embed"
	"github.com/lorafuse/lorafuse/internal/generate/sample"
	"github.com/lorafuse/lorafuse/internal/model/hub"
	"github.com/lorafuse/lorafuse/internal/ranks"
	"github.com/lorafuse/lorafuse/internal/train"
	"github.com/lorafuse/lorafuse/lora"
	"github.com/lorafuse/lorafuse/safetensors"
)

// Exit statuses.
const (
	ExitOK          = 0
	ExitDifferent   = 1   // the check failed: different, beyond the tolerance, incomplete
	ExitUsage       = 2   // wrong flags, settings, files or data
	ExitFailure     = 3   // right so far, and then it failed: memory, disk, network, not a number
	ExitLost        = 75  // a rank of a distributed run is lost; start it again with --resume
	ExitInterrupted = 130 // by the user
	ExitGone        = 141 // who read the output has closed it, which needs no words
)

const exitHelp = `Exit status:
  0    done
  1    a check failed: diff found a difference, compare exceeded its tolerance,
       inspect found an adapter that does not fit or a file with a problem, data
       validate a problem
  2    wrong usage or bad input: flags, settings, files, data
  3    it failed under way: out of memory, disk full, no network, a model file
       that is cut short, a loss that is not finite
  75   a rank of a distributed run is lost; start it again with --resume
  130  interrupted (SIGINT, SIGTERM); a second signal ends at once
  141  who read standard output has closed it, as head does`

// different is the error of a check that was made and failed.
type different struct{ message string }

func (d *different) Error() string { return d.message }

func differs(format string, args ...any) error { return &different{fmt.Sprintf(format, args...)} }

// failure is an error with status ExitFailure, which its cause does not imply.
type failure struct{ error }

func (f *failure) Unwrap() error { return f.error }

// interrupted is an error that comes with its own advice.
type interrupted struct{ error }

func (i *interrupted) Unwrap() error { return i.error }

// usagef returns an error about how a command was called.
func usagef(command, format string, args ...any) error {
	return fmt.Errorf("%s: %s; see '%s --help'", strings.TrimPrefix(command, "lorafuse "), fmt.Sprintf(format, args...), command)
}

// exit prints err on one line and returns its exit status.
func (a *app) exit(ctx context.Context, err error) int {
	if err == nil {
		return ExitOK
	}
	if errors.Is(err, errGone) {
		return ExitGone
	}
	status, message := statusOf(ctx, err), err.Error()
	if a.silent(err) {
		return status
	}
	var own *interrupted
	if status == ExitInterrupted && !errors.As(err, &own) {
		message = "interrupted"
	}
	fmt.Fprintf(a.err, "lorafuse: %s\n", oneLine(message))
	return status
}

// broken are the errors that are not about the input.
var broken = []error{
	backend.ErrOutOfMemory, backend.ErrTimeout, embed.ErrNotFinite, train.ErrNotFinite, train.ErrRunning, lora.ErrNotFinite, sample.ErrLogits,
	hub.ErrUnreachable, hub.ErrRedirect, hub.ErrCorrupt, hub.ErrNoSpace, hub.ErrOffline, hub.ErrMoved,
	safetensors.ErrFault,
}

func statusOf(ctx context.Context, err error) int {
	var check *different
	var fail *failure
	var adapter *lora.CheckError
	var remote *ranks.RemoteError
	switch {
	case errors.Is(err, train.ErrInterrupted), ctx.Err() != nil && errors.Is(err, context.Canceled):
		return ExitInterrupted
	case errors.Is(err, dist.ErrLost):
		return ExitLost
	case errors.As(err, &remote) && remote.Status > 0:
		return remote.Status
	case errors.As(err, &check):
		return ExitDifferent
	case errors.As(err, &adapter): // may already contain values that are not finite
		return ExitUsage
	case errors.As(err, &fail), isSystemError(err):
		return ExitFailure
	}
	for _, b := range broken {
		if errors.Is(err, b) {
			return ExitFailure
		}
	}
	return ExitUsage
}

// oneLine joins the lines of a message and removes control characters, which file names and keys may contain.
func oneLine(s string) string {
	s = strings.ReplaceAll(strings.TrimSpace(s), "\n", "; ")
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, s)
}
