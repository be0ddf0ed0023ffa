package progress

import (
	"io"
	"strings"
	"sync"

	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/decor"
)

// bars draws tasks on a terminal. Its container exists while there are tasks.
type bars struct {
	w       io.Writer
	options []mpb.ContainerOption

	mu sync.Mutex
	p  *mpb.Progress
}

// add creates the bar of a task.
func (b *bars) add(t *task) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.p == nil {
		b.p = mpb.New(append([]mpb.ContainerOption{mpb.WithOutput(b.w)}, b.options...)...)
	}
	// Created without a total, a bar ends only when update ends it.
	t.bar = b.p.New(0, mpb.BarStyle().Lbound("").Rbound("").Filler("━").Tip("━").Padding("─").Refiller("━"),
		mpb.BarWidth(24),
		mpb.BarFillerTrim(),
		mpb.PrependDecorators(
			decor.Name(t.name, decor.WCSyncSpaceR),
			decor.Any(func(decor.Statistics) string { return t.locked((*task).counts) }, decor.WCSyncSpace),
			decor.Name(" "),
		),
		mpb.AppendDecorators(
			decor.Name(" "),
			decor.Any(func(decor.Statistics) string { return t.locked((*task).tail) }),
		),
	)
}

// update updates the bar. The caller must not hold the lock of a task: the bar
// waits for its goroutine, which may be drawing and acquire that lock.
func (b *bars) update(t *task, done, total int64, finished bool) {
	t.bar.SetCurrent(done)
	t.bar.SetTotal(max(total, 0), finished)
}

// Write prints above the bars.
func (b *bars) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.p == nil {
		return b.w.Write(p)
	}
	return b.p.Write(p)
}

// close stops the bars of the open tasks at their current position and waits
// until everything is drawn.
func (b *bars) close(open []*task) {
	for _, t := range open {
		t.bar.Abort(false)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.p != nil {
		b.p.Wait()
		b.p = nil
	}
}

func (t *task) locked(describe func(*task) string) string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return describe(t)
}

// tail returns the text after the bar.
func (t *task) tail() string { return strings.Join(t.details(), "  ") }
