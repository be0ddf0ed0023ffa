// Package cli is the command line: it reads flags, calls the libraries, shows
// progress and turns errors into one line and an exit status.
package cli

import (
	"context"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"sync"
	"time"

	"github.com/lorafuse/lorafuse/dist"
	"github.com/lorafuse/lorafuse/internal/progress"
	"github.com/lorafuse/lorafuse/safetensors"
)

// Main runs the command line of this process and returns its exit status. The
// first SIGINT or SIGTERM asks the command to end, a second one ends the
// process.
func Main() int {
	ctx, i := watchInterrupts(context.Background())
	defer i.stop()
	return Run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr)
}

// Run runs one command line. Results go to stdout; progress, notes and errors go to stderr. ctx is canceled when the
// user interrupts. The exit status is one of the Exit constants.
func Run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) (status int) {
	a := &app{in: &input{ctx: ctx, r: stdin}, out: &output{w: stdout}, err: stderr}
	return a.run(ctx, args)
}

// run runs one command line and returns its exit status.
func (a *app) run(ctx context.Context, args []string) (status int) {
	defer func() {
		if p := recover(); p != nil {
			a.close()
			defer func() { a.leave(status, true) }()
			status = a.exit(ctx, a.panicked(p))
		}
	}()
	debug.SetPanicOnFault(true) // turn access to a file truncated while mapped into an error
	root := a.root()
	root.SetArgs(args)
	root.SetIn(a.in)
	root.SetOut(a.out)
	root.SetErr(a.err)
	err := root.ExecuteContext(ctx)
	if err == nil {
		if err = a.out.err; err != nil {
			err = &failure{err}
		}
	}
	a.close()
	status = a.exit(ctx, err)
	a.leave(status, status == ExitLost)
	return status
}

// panicked returns the error of a panic: a mapped file that was truncated, or an internal error.
func (a *app) panicked(p any) error {
	if fault := safetensors.Fault(p); fault != nil {
		return fault
	}
	if os.Getenv("LORAFUSE_TRACE") != "" {
		a.err.Write(debug.Stack())
	}
	return &failure{fmt.Errorf("internal error: %v; please report it with the output of LORAFUSE_TRACE=1", p)}
}

// app is one run of the program.
type app struct {
	in  *input
	out *output   // results
	err io.Writer // progress, notes, errors

	world dist.World // of the launcher that started this process, or nil

	mu      sync.Mutex // of display: downloads report from several goroutines
	display *progress.Display
}

// progress returns the display on which tasks report progress.
func (a *app) progress() *progress.Display {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.display == nil {
		if a.display = progress.New(a.err); !a.leads() {
			a.display = progress.New(io.Discard)
		}
	}
	return a.display
}

// steps shows the progress of a task that began a while ago. Short tasks show nothing.
func (a *app) steps(task string, done, total int, began time.Time) {
	if time.Since(began) > 2*time.Second {
		a.progress().Steps(task, int64(done), int64(total), "")
	}
}

// tasks returns a function that shows the progress of tasks that take a while.
func (a *app) tasks() func(task string, done, total int) {
	began := map[string]time.Time{}
	return func(task string, done, total int) {
		if began[task].IsZero() {
			began[task] = time.Now()
		}
		a.steps(task, done, total, began[task])
	}
}

// loading returns a function that shows read progress if reading takes a while. Further reports for a finished task
// are ignored.
func (a *app) loading() func(task string, done, total int64) {
	began, finished := map[string]time.Time{}, map[string]bool{}
	var mu sync.Mutex
	return func(task string, done, total int64) {
		mu.Lock()
		defer mu.Unlock()
		if began[task].IsZero() {
			began[task] = time.Now()
		}
		if finished[task] || time.Since(began[task]) < time.Second {
			return
		}
		finished[task] = total > 0 && done >= total
		a.progress().Bytes(task, done, total)
	}
}

// note prints a note to the user above the progress bars.
func (a *app) note(format string, args ...any) {
	fmt.Fprintln(a.progress(), oneLine(fmt.Sprintf(format, args...)))
}

// close ends the progress display; a later report starts a new one.
func (a *app) close() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.display != nil {
		a.display.Close()
		a.display = nil
	}
}
