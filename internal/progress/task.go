package progress

import (
	"fmt"
	"math"
	"strings"
	"sync"
	"time"

	"github.com/vbauerster/mpb/v8"

	"github.com/lorafuse/lorafuse/internal/bytesize"
)

// A task is the latest reported state of one piece of work.
type task struct {
	name  string
	bytes bool
	bar   *mpb.Bar

	mu          sync.Mutex
	done, total int64
	message     string
	older       mark // start of the interval over which the rate is measured
	newer       mark // the next value of older
	now         time.Time
	printed     time.Time
	changed     bool // since it was last printed
}

// A mark is the progress of a task at a point in time.
type mark struct {
	at   time.Time
	done int64
}

// window is the minimum interval over which the rate is averaged; the maximum
// is twice that.
const window = 30 * time.Second

func newTask(name string, bytes bool, done int64, now time.Time) *task {
	// The rate of a resumed task must not include the earlier progress.
	m := mark{now, done}
	return &task{name: name, bytes: bytes, older: m, newer: m}
}

// update records a report and returns whether the task is finished.
func (t *task) update(done, total int64, message string, now time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.done, t.total, t.message, t.now, t.changed = done, total, message, now, true
	if now.Sub(t.newer.at) > window {
		t.older, t.newer = t.newer, mark{now, done}
	}
	return total > 0 && done >= total
}

// due returns a line about the task if it is time for one: the first, one per
// interval, and the last.
func (t *task) due(now time.Time, every time.Duration) (string, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.changed {
		return "", false
	}
	finished := t.total > 0 && t.done >= t.total
	if !t.printed.IsZero() && now.Sub(t.printed) < every && !finished {
		return "", false
	}
	t.printed, t.changed = now, false
	parts := []string{t.name, t.counts()}
	if t.total > 0 {
		parts = append(parts, fmt.Sprintf("%d%%", int(percent(t.done, t.total))))
	}
	return strings.Join(append(parts, t.details()...), "  "), true
}

// counts returns "120/500" or "1.2/4.9 GB".
func (t *task) counts() string {
	if !t.bytes {
		if t.total > 0 {
			return fmt.Sprintf("%d/%d", t.done, t.total)
		}
		return fmt.Sprint(t.done)
	}
	if t.total <= 0 {
		return bytesize.Decimal(float64(t.done))
	}
	unit, name := bytesize.Unit(float64(t.total))
	return fmt.Sprintf("%s/%s %s", bytesize.Short(float64(t.done)/unit), bytesize.Short(float64(t.total)/unit), name)
}

// details returns the rate, the remaining time and the message, omitting
// unknown ones.
func (t *task) details() []string {
	var parts []string
	if rate := t.rate(); rate > 0 {
		if t.bytes {
			parts = append(parts, bytesize.Decimal(rate)+"/s")
		} else if rate >= 1 {
			parts = append(parts, bytesize.Short(rate)+"/s")
		} else {
			parts = append(parts, bytesize.Short(1/rate)+" s each")
		}
		if left := float64(t.total-t.done) / rate; left > 0 && left < 1e8 {
			parts = append(parts, span(time.Duration(left*float64(time.Second)))+" left")
		}
	}
	if t.message != "" {
		parts = append(parts, t.message)
	}
	return parts
}

// rate returns the rate in units per second, 0 if it is not known yet.
func (t *task) rate() float64 {
	seconds := t.now.Sub(t.older.at).Seconds()
	if seconds <= 0 || t.done <= t.older.done {
		return 0
	}
	return float64(t.done-t.older.done) / seconds
}

func percent(done, total int64) float64 {
	return min(100, math.Floor(100*float64(done)/float64(total)))
}

// span formats a duration with its two largest units.
func span(d time.Duration) string {
	d = max(d.Round(time.Second), time.Second)
	h, m, s := int(d.Hours()), int(d.Minutes())%60, int(d.Seconds())%60
	switch {
	case h > 0:
		return fmt.Sprintf("%dh%02dm", h, m)
	case m > 0:
		return fmt.Sprintf("%dm%02ds", m, s)
	}
	return fmt.Sprintf("%ds", s)
}
