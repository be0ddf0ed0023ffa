package backend

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/lorafuse/lorafuse/ir"
)

// Profile adds up what the launches of a device cost, by operation and shapes.
// A device that is opened with one measures every launch, which costs it a
// little time of its own. It is safe for concurrent use.
type Profile struct {
	mu   sync.Mutex
	rows map[*ir.Launch]*launches
}

// Peak is what a device reaches at most: the yardstick of a profile.
type Peak struct {
	FlopsPerSecond float64 `json:"flops_per_second"` // of matrix products at its precision
	BytesPerSecond float64 `json:"bytes_per_second"` // read from memory
	// CopiedPerSecond is bytes that come to a device's own memory from pinned
	// memory of the host; 0 where both are one.
	CopiedPerSecond float64 `json:"copied_per_second,omitempty"`
}

// Meter is a device that can measure itself.
type Meter interface {
	// Peak measures what it reaches at most. That takes a fraction of a second and
	// all of the device.
	Peak() (Peak, error)
	// Read reads buffers and does nothing else with them: the yardstick of programs
	// that are bound by the memory they read.
	Read(buffers []Buffer) error
}

// launches is what is known of one launch of a program. Its cost depends on
// the run-time sizes, so it is counted run by run.
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

// Rows gives the launches so far, those of the same operation and shapes in
// one row, the slowest first.
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
