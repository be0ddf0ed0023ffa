// Package share divides the time of a device between the steps of a server and the launches of
// concurrent training. While there is nothing to serve, training has the whole device;
// otherwise it gets a time slice after each step.
package share

import (
	"context"
	"sync"
	"time"
)

// Gate schedules serving and training on a device. Serving calls Begin and End around its steps,
// and Idle when it has no requests; training calls Launch before each launch.
//
// It is safe for concurrent use.
type Gate struct {
	ratio float64 // length of a slice relative to the step before it

	over func() // the method value end, allocated once

	mu       sync.Mutex
	phase    phase
	since    time.Time     // time of the last call of account
	credit   time.Duration // remaining slice of training; negative if it overran
	floor    time.Duration // credit at which the slice ends
	step     time.Duration // duration of the current step so far, without launches
	usual    time.Duration // moving average of the step duration
	late     time.Duration // moving average of the time by which slices overrun the floor, as launches cannot be interrupted
	launches int           // in progress
	waiting  int           // launches waiting to begin
	left     time.Time     // end of the last launch
	changed  chan struct{} // closed when a launch may begin; nil if none waits
	used     Used
}

// phase is the side whose turn it is.
type phase uint8

const (
	idle     phase = iota // there is nothing to serve
	stepping              // a step is running, perhaps with a launch that began before it
	lending               // training has a slice
)

// Used is the time that each side has used.
type Used struct {
	Steps  uint64        // number of serving steps
	Step   time.Duration // total duration of steps, without launches
	Slices uint64        // number of slices for training
	// Slice is the time that serving has waited for training: slices, and launches that overran
	// into a step.
	Slice time.Duration
	// Idle is the time of launches while there was nothing to serve.
	Idle time.Duration
}

// Plus returns the sums of two gates.
func (u Used) Plus(o Used) Used {
	return Used{Steps: u.Steps + o.Steps, Step: u.Step + o.Step, Slices: u.Slices + o.Slices, Slice: u.Slice + o.Slice, Idle: u.Idle + o.Idle}
}

// patience is the maximum time that serving waits in a slice for a launch. It exceeds the gaps
// between launches of a training step.
const patience = 2 * time.Millisecond

// longest is the maximum length of a slice relative to the slice after a usual step. The rest of
// the credit of a longer step, such as a prefill, is spent in later slices.
const longest = 1.0625

// New returns a gate that gives training the fraction part of the time while there are requests.
// part must be more than 0 and less than 1.
func New(part float64) *Gate {
	g := &Gate{ratio: part / (1 - part), since: time.Now()}
	g.over = g.end
	return g
}

// Begin starts a serving step. It does not wait for launches in progress, which run to their end,
// but no new launch may begin.
func (g *Gate) Begin() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.enter(stepping)
}

// End ends the step, unless the gate has become Idle. If training is waiting, End gives it a slice
// and blocks until the slice ends, training stops or ctx is done. It never blocks longer than the
// slice, however long a launch takes.
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
		g.credit = min(g.credit, 0) // no launch is waiting
	case g.credit > 0:
		g.used.Slices++
		g.lend(ctx)
	}
}

// lend blocks during the slice of training.
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

// Wanted reports whether training uses the device or waits for it.
func (g *Gate) Wanted() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.launches+g.waiting > 0
}

// Idle declares that serving has no work until the next Begin. Training runs without limits and
// accumulates no debt.
func (g *Gate) Idle() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.enter(idle)
	g.credit, g.step = 0, 0
}

// Launch blocks until training may run or ctx is done. The caller must call over after the launch.
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

// end ends a launch.
func (g *Gate) end() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.account()
	g.launches--
	g.left = g.since
	if g.waiting > 0 {
		g.wakeAll()
	}
}

// open reports whether a launch may begin. In a slice they run one at a time, so that little is in
// progress at its end.
func (g *Gate) open() bool {
	return g.phase == idle || g.phase == lending && g.credit > g.floor && g.launches == 0
}

// Used returns the time used so far, up to the last step or launch.
func (g *Gate) Used() Used {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.used
}

// enter starts a phase.
func (g *Gate) enter(p phase) {
	g.account()
	g.phase = p
	g.wakeAll()
}

// wakeAll wakes waiting launches to check their condition again.
func (g *Gate) wakeAll() {
	if g.changed != nil {
		close(g.changed)
		g.changed = nil
	}
}

// account adds the time since the last call to the counter of the current phase.
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

// wait blocks, without the lock, until a launch may begin or ctx is done.
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

// sleep blocks, without the lock, for a duration or until ctx is done.
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
