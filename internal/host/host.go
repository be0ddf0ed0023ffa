// Package host runs programs of a model on a device. A [Host] plans and compiles a program
// when it is first asked for, keeps it for the next call within a memory budget, runs it, and
// returns its results by name. Loops (training, generating, scoring, drawing) describe their
// programs as [engine.Spec] values and leave memory, compilation and scheduling to it.
package host

import (
	"context"
	"slices"
	"sync"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/internal/engine"
	"github.com/lorafuse/lorafuse/internal/model"
	"github.com/lorafuse/lorafuse/lora"
)

// budget is the maximum memory of the arenas of cached programs together, in bytes. An arena
// that is larger is the only one cached.
const budget = 1 << 30

// maxPrograms is the maximum number of programs that a host caches.
const maxPrograms = 64

// Host holds one copy of a model's weights on a device and caches the programs that run with
// them. Only one goroutine at a time may use it, except for Beside, Plan and Prepare;
// goroutines that share a host synchronize with Lock and Unlock.
type Host struct {
	*engine.Runtime
	turn     sync.Mutex
	budget   int64
	programs []cached // most recently used last
	attached []*engine.Slot
}

// Open returns a host of a model on a device; nothing is on the device yet. The model must
// stay open, and the device too, until the host is closed.
func Open(dev backend.Device, m *model.Model) *Host { return with(engine.New(dev, m)) }

func with(r *engine.Runtime) *Host { return &Host{Runtime: r, budget: budget} }

// Beside returns another host of the same model on the same device. The two share weights and
// nothing else, so each may be used by its own goroutine. Closing the last one frees the
// weights.
//
// If launch is not nil, the new host has low priority: each of its runs calls launch before
// each kernel, or before the run if the device cannot pause between kernels. launch may wait
// until its context ends. It returns a function that is called when the kernel has ended.
func (h *Host) Beside(launch func(context.Context) (over func())) *Host {
	return with(h.Runtime.Beside(launch))
}

// Lock waits for the turn of the caller among the goroutines that share the host.
func (h *Host) Lock() { h.turn.Lock() }

// Unlock ends the turn.
func (h *Host) Unlock() { h.turn.Unlock() }

// Limit lowers the memory that arenas of cached programs may have together.
func (h *Host) Limit(bytes int64) { h.budget = min(h.budget, bytes) }

// Attach returns a new slot for an adapter. The host frees it with Detach or Close.
func (h *Host) Attach(state *lora.State) (*engine.Slot, error) {
	s, err := h.NewSlot(state)
	if err == nil {
		h.attached = append(h.attached, s)
	}
	return s, err
}

// Detach frees a slot. If the slot is attached, Detach also frees cached programs: the ones that
// fit no other attached slot, and the ones that ran last with it and others. Detaching twice does
// nothing.
func (h *Host) Detach(s *engine.Slot) {
	if i := slices.Index(h.attached, s); i >= 0 {
		h.attached = slices.Delete(h.attached, i, i+1)
		for i := range h.programs {
			c := &h.programs[i]
			c.holders = slices.DeleteFunc(c.holders, func(x *engine.Slot) bool { return x == s })
		}
		h.UnloadFunc(func(_ string, p *engine.Program) bool {
			return p.Fits(s) && !slices.ContainsFunc(h.attached, p.Fits) || p.Combines(s)
		})
	}
	s.Free()
}

// Close unloads all programs, frees attached slots, and frees the weights unless another host
// has them. Other slots and caches stay their owners', to be freed. Closing twice does nothing.
func (h *Host) Close() {
	h.programs = nil
	for _, s := range h.attached {
		s.Free()
	}
	h.attached = nil
	h.Runtime.Close()
}
