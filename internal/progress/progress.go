// Package progress shows the progress of long tasks on the command line: as
// bars on a terminal, or else as occasional lines.
//
// Libraries do not import it. They accept a callback, or declare an interface
// with the methods of [Reporter] that they call; to allow this, all parameters
// have basic types.
package progress

import (
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/vbauerster/mpb/v8/cwriter"
)

// Reporter receives progress reports. A task begins with its first report and
// ends when done reaches a total above 0; a total of 0 or less means unknown.
// It is safe for concurrent use, even for the same task.
type Reporter interface {
	// Steps reports how many of the total steps of a task are done; message
	// describes the last one ("loss 1.2345") and may be empty.
	Steps(task string, done, total int64, message string)
	// Bytes reports the progress of a task that is measured in bytes.
	Bytes(task string, done, total int64)
}

// Discard is a Reporter that does nothing.
var Discard Reporter = discard{}

type discard struct{}

func (discard) Steps(string, int64, int64, string) {}
func (discard) Bytes(string, int64, int64)         {}

// A Display is the Reporter of the command line. As a Writer it prints text
// above the bars.
type Display struct {
	w     io.Writer
	every time.Duration // interval between two lines of a task, without bars
	now   func() time.Time
	bars  *bars // nil if w is not a terminal

	mu    sync.Mutex
	tasks map[string]*task
	order []*task // in the order in which they began
}

// New returns a Display that shows progress on w: bars if w is a terminal that
// can move its cursor, or else one line per task every ten seconds.
func New(w io.Writer) *Display {
	d := &Display{w: w, every: 10 * time.Second, now: time.Now, tasks: map[string]*task{}}
	if f, ok := w.(*os.File); ok && drawable(f) {
		d.bars = &bars{w: w}
	}
	return d
}

// drawable reports whether f is a terminal that can show bars.
func drawable(f *os.File) bool {
	fd := int(f.Fd())
	if !cwriter.IsTerminal(fd) || os.Getenv("TERM") == "dumb" {
		return false
	}
	width, _, err := cwriter.GetSize(fd)
	return err == nil && width > 0 // some pseudo-terminals have no size
}

// Steps implements [Reporter].
func (d *Display) Steps(task string, done, total int64, message string) {
	d.report(task, false, done, total, message)
}

// Bytes implements [Reporter].
func (d *Display) Bytes(task string, done, total int64) {
	d.report(task, true, done, total, "")
}

func (d *Display) report(name string, bytes bool, done, total int64, message string) {
	t := d.task(name, bytes, done)
	finished := t.update(done, total, message, d.now())
	if finished {
		d.forget(t)
	}
	if d.bars != nil {
		d.bars.update(t, done, total, finished)
		return
	}
	if line, due := t.due(d.now(), d.every); due {
		d.mu.Lock()
		defer d.mu.Unlock()
		fmt.Fprintln(d.w, line)
	}
}

// Write prints lines of text above the bars.
func (d *Display) Write(p []byte) (int, error) {
	if d.bars != nil {
		return d.bars.Write(p)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.w.Write(p)
}

// Close ends the display and leaves unfinished tasks in their current state. A
// later report starts a new display.
func (d *Display) Close() {
	d.mu.Lock()
	open := d.order
	d.tasks, d.order = map[string]*task{}, nil
	d.mu.Unlock()
	if d.bars != nil {
		d.bars.close(open)
		return
	}
	for _, t := range open {
		if line, due := t.due(d.now(), 0); due {
			fmt.Fprintln(d.w, line)
		}
	}
}

// task returns the running task with the given name, or a new one.
func (d *Display) task(name string, bytes bool, done int64) *task {
	d.mu.Lock()
	defer d.mu.Unlock()
	t := d.tasks[name]
	if t == nil {
		t = newTask(name, bytes, done, d.now())
		d.tasks[name] = t
		d.order = append(d.order, t)
		if d.bars != nil {
			d.bars.add(t)
		}
	}
	return t
}

func (d *Display) forget(t *task) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.tasks[t.name] == t {
		delete(d.tasks, t.name)
	}
	for i, o := range d.order {
		if o == t {
			d.order = append(d.order[:i:i], d.order[i+1:]...)
			break
		}
	}
}
