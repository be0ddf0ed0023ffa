package backend

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/lorafuse/lorafuse/internal/ir"
)

// Profile accumulates the costs of a device's launches by operation and shapes. A device that is opened with a
// profile measures every launch, which has a small overhead. It is safe for concurrent use.
type Profile struct {
	mu   sync.Mutex
	rows map[*ir.Launch]*launches
}

// Peak is the peak rate of a device. Profiles are relative to it.
type Peak struct {
	FlopsPerSecond float64 `json:"flops_per_second"` // of matrix products at its precision
	BytesPerSecond float64 `json:"bytes_per_second"` // read from memory
	// CopiedPerSecond is bytes that come to a device's own memory from pinned
	// memory of the host; 0 where both are one.
	CopiedPerSecond float64 `json:"copied_per_second,omitempty"`
}

// Meter is implemented by devices that can measure their peak rates.
type Meter interface {
	// Peak measures the peak rates. It uses the whole device for a fraction of a second.
	Peak() (Peak, error)
	// Read reads buffers and does nothing else, as a lower bound of the time of programs that are
	// limited by memory bandwidth.
	Read(buffers []Buffer) error
}

// launches is the cost of one launch of a program. It depends on run-time sizes, so it is summed run by run.
type launches struct {
	calls        int
	time         time.Duration
	flops, bytes int
	dims         []int // of the last run
}

// ProfileRow is one line of a profile.
type ProfileRow struct {
	Op     string        `json:"op"`
	Shapes string        `json:"shapes"` // in→out, of the last run
	Calls  int           `json:"calls"`
	Time   time.Duration `json:"nanoseconds"`
	Flops  int           `json:"flops"`
	Bytes  int           `json:"bytes"` // read and written
}

// Add records one run of a launch with the given values of the bounded
// dimensions. flops is its work where that depends on the contents of its
// inputs and not on their shapes alone, as with attention; else 0.
func (p *Profile) Add(l *ir.Launch, dims []int, flops int, took time.Duration) {
	byShape, bytes := l.Cost(dims)
	if flops == 0 {
		flops = byShape
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	r := p.rows[l]
	if r == nil {
		if p.rows == nil {
			p.rows = map[*ir.Launch]*launches{}
		}
		r = &launches{}
		p.rows[l] = r
	}
	r.calls++
	r.time += took
	r.flops += flops
	r.bytes += bytes
	r.dims = append(r.dims[:0], dims...)
}

// Rows returns the costs so far, one row per operation and shapes, slowest first.
func (p *Profile) Rows() []ProfileRow {
	p.mu.Lock()
	defer p.mu.Unlock()
	type key struct{ op, shapes string }
	sums := map[key]*ProfileRow{}
	for l, r := range p.rows {
		k := key{l.Op.String(), shapesOf(l, r.dims)}
		row := sums[k]
		if row == nil {
			row = &ProfileRow{Op: k.op, Shapes: k.shapes}
			sums[k] = row
		}
		row.Calls += r.calls
		row.Time += r.time
		row.Flops += r.flops
		row.Bytes += r.bytes
	}
	rows := make([]ProfileRow, 0, len(sums))
	for _, row := range sums {
		rows = append(rows, *row)
	}
	slices.SortFunc(rows, func(a, b ProfileRow) int {
		return cmp.Or(cmp.Compare(b.Time, a.Time), cmp.Compare(a.Op, b.Op), cmp.Compare(a.Shapes, b.Shapes))
	})
	return rows
}

func shapesOf(l *ir.Launch, dims []int) string {
	var b strings.Builder
	write := func(refs []ir.Ref) {
		for i, r := range refs {
			if i > 0 {
				b.WriteByte(' ')
			}
			b.WriteString(strings.ToLower(r.Stored().String()))
			b.WriteString(strings.ReplaceAll(fmt.Sprint(r.Type.Shape.Resolve(dims)), " ", ","))
		}
	}
	write(l.In)
	b.WriteString(" → ")
	write(l.Out)
	return b.String()
}
