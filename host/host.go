// Package host runs programs of a model on a device. A [Host] plans and compiles a program
// when it is first asked for, keeps it for the next call within a memory budget, runs it, and
// returns its results by name. Loops (training, generating, scoring, drawing) describe their
// programs as [engine.Spec] values and leave memory, compilation and scheduling to it.
package host

import (
	"context"
	"sync"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/engine"
	"github.com/lorafuse/lorafuse/model"
)

// budget is the memory that the arenas of cached programs may have together, in bytes. An
// arena that is larger is the only one.
const budget = 1 << 30

// maxPrograms is how many programs a host caches.
const maxPrograms = 64

// Host has the weights of a model on a device, once, and the programs that run with them. It
// is used by one goroutine at a time, except for Beside, Plan and Prepare; goroutines that
// share a host take turns by Lock and Unlock.
type Host struct {
	*engine.Runtime
	turn     sync.Mutex
	budget   int64
	programs []cached // the one that was used last is last
}

// Open returns a host of a model on a device; nothing is on the device yet. The model must
// stay open, and the device too, until the host is closed.
func Open(dev backend.Device, m *model.Model) *Host { return with(engine.New(dev, m)) }

func with(r *engine.Runtime) *Host { return &Host{Runtime: r, budget: budget} }

// Beside returns another host of the same model on the same device. They share the weights,
// which stay there until both are closed, and have everything else of their own, so that each
// may be used by a goroutine of its own at the same time.
//
// If launch is not nil, the new host gives way: each of its runs calls launch before each
// kernel, or before the run if the device cannot stop in between. launch may wait, until its
// context ends, and returns what is called when the kernel has ended.
func (h *Host) Beside(launch func(context.Context) (over func())) *Host {
	return with(h.Runtime.Beside(launch))
}

// Lock waits for the turn of the caller among the goroutines that share the host.
func (h *Host) Lock() { h.turn.Lock() }

// Unlock ends the turn.
func (h *Host) Unlock() { h.turn.Unlock() }

// Close unloads all programs, and frees the weights unless another host has them. Slots and
// caches stay their owners', to be freed. Closing twice does nothing.
func (h *Host) Close() {
	h.programs = nil
	h.Runtime.Close()
}
