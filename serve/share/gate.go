// Package share divides the time of one machine between what serves, step by step, and
// what trains beside it, launch by launch: training has the whole machine while there is
// nothing to serve, and else a slice of time behind each step.
package share

import (
	"context"
	"sync"
	"time"
)

// Gate says who may use the machine. Serving calls Begin and End around its steps, and
// Idle where there are none to make; training calls Launch before whatever it runs.
//
// It is safe for concurrent use.
type Gate struct {
	ratio float64 // of a slice to the step before it

	over func() // end, made once

	mu       sync.Mutex
	phase    phase
	since    time.Time     // of the last account
	credit   time.Duration // that training has in a slice; below 0: what it has had too much
	floor    time.Duration // of credit, where the slice ends
	step     time.Duration // that the step under way took so far, without launches in it
	usual    time.Duration // that steps take, the last ones most of all
	late     time.Duration // that slices end behind the floor, likewise: a launch goes on to its end
	launches int           // under way
	waiting  int           // launches that may not begin
	left     time.Time     // when the last launch was over
	changed  chan struct{} // closed when a launch may begin, nil where none waits
	used     Used
}

// phase is whose turn it is.
type phase uint8

const (
	idle     phase = iota // there is nothing to serve
	stepping              // a step is under way, and perhaps a launch that was begun before it
	lending               // training has a slice
)

// Used is what the time has gone to.
type Used struct {
	Steps  uint64        // of serving
	Step   time.Duration // that these took, without launches in them
	Slices uint64        // that training was given behind steps
	// Slice is the time that serving has waited for training: slices, and launches that
	// went on into a step.
	Slice time.Duration
	// Idle is the time of launches while there was nothing to serve.
	Idle time.Duration
}

// patience is how long serving waits in a slice for a launch to come: longer than a
// training step is away between two of its launches.
const patience = 2 * time.Millisecond

// longest is how much longer than behind a usual step a slice is: what a long step, such as
// one that reads a prompt, gives beyond that is for the slices behind others.
const longest = 1.0625

// New is a gate behind which training gets a part of the time while there is something to
// serve: more than 0, less than 1.
func New(part float64) *Gate {
	g := &Gate{ratio: part / (1 - part), since: time.Now()}
	g.over = g.end
	return g
}

// Begin begins a step of serving. It does not wait: launches under way go on to their
// ends, and no more are begun.
func (g *Gate) Begin() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.enter(stepping)
}

// End ends the step, if it has not become Idle. Where training is there, End gives it a
// slice and waits for the end of that, or until training goes away or ctx ends: the slice
// at most, however long a launch takes.
func (g *Gate) End(ctx context.Context) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.account()
	if g.phase != stepping {
		return
	}
	g.used.Steps++
	g.used.Step += g.step
	g.credit += time.Duration(g.ratio * float64(g.step))
	if g.usual == 0 {
		g.usual = g.step
	}
	g.usual += (g.step - g.usual) / 16
	g.step = 0
	switch {
	case g.launches+g.waiting == 0:
		g.credit = min(g.credit, 0) // nobody wants it
	case g.credit > 0:
		g.used.Slices++
		g.lend(ctx)
	}
}

// lend waits while training has what is left of its slice.
func (g *Gate) lend(ctx context.Context) {
	g.floor = max(0, g.credit-time.Duration(longest*g.ratio*float64(g.usual))) + g.late
	g.enter(lending)
	for g.credit > g.floor && ctx.Err() == nil {
		g.sleep(ctx, min(g.credit-g.floor, patience))
		g.account()
		if g.launches+g.waiting == 0 && g.since.Sub(g.left) >= patience {
			g.credit = min(g.credit, 0)
			break
		}
	}
	g.late += (max(0, g.floor-g.credit) - g.late) / 16
	g.enter(stepping)
}

// Idle says that there is nothing to serve until the next Begin: training runs as it
// likes, and owes nothing.
func (g *Gate) Idle() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.enter(idle)
	g.credit, g.step = 0, 0
}

// Launch waits until training may run, or ctx has ended, and gives what is to be called
// when that launch is over.
func (g *Gate) Launch(ctx context.Context) (over func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.account()
	g.waiting++
	for !g.open() && ctx.Err() == nil {
		g.wait(ctx)
		g.account()
	}
	g.waiting--
	g.launches++
	return g.over
}

// end is what ends a launch.
func (g *Gate) end() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.account()
	g.launches--
	g.left = g.since
	if g.waiting > 0 {
		g.tell()
	}
}

// open reports whether a launch may begin: in a slice one at a time, so that the least is
// under way when it is over.
func (g *Gate) open() bool {
	return g.phase == idle || g.phase == lending && g.credit > g.floor && g.launches == 0
}

// Used is what the time has gone to so far, up to the last step or launch.
func (g *Gate) Used() Used {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.used
}

// enter begins a phase.
func (g *Gate) enter(p phase) {
	g.account()
	g.phase = p
	g.tell()
}

// tell wakes the launches that wait, for what they wait for may have come.
func (g *Gate) tell() {
	if g.changed != nil {
		close(g.changed)
		g.changed = nil
	}
}

// account adds the time since the last account to what it has gone to.
func (g *Gate) account() {
	now := time.Now()
	took := now.Sub(g.since)
	g.since = now
	switch {
	case g.phase == lending, g.phase == stepping && g.launches > 0:
		g.credit -= took
		g.used.Slice += took
	case g.phase == stepping:
		g.step += took
	case g.launches > 0:
		g.used.Idle += took
	}
}

// wait waits, without the lock, until a launch may begin or ctx ends.
func (g *Gate) wait(ctx context.Context) {
	if g.changed == nil {
		g.changed = make(chan struct{})
	}
	changed := g.changed
	g.mu.Unlock()
	defer g.mu.Lock()
	select {
	case <-changed:
	case <-ctx.Done():
	}
}

// sleep waits, without the lock, for so long, or for the end of ctx.
func (g *Gate) sleep(ctx context.Context, long time.Duration) {
	g.mu.Unlock()
	defer g.mu.Lock()
	timer := time.NewTimer(long)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
