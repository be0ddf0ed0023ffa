package engine

import (
	"context"
	"fmt"

	"github.com/lorafuse/lorafuse/lora"
	"github.com/lorafuse/lorafuse/nn"
)

// Slot holds an adapter on a device, or none: its parameters and what is made of
// them, and where it is trained, gradients, moments and losses. Programs that were
// planned for one slot run with every slot whose adapter has the same shape.
type Slot struct {
	state   *lora.State
	adapter nn.Adapter
	store   *nn.Store
	stale   bool // parameters have changed since what is made of them was made
}

// NewSlot prepares a slot for an adapter, or for none where state is nil. Nothing
// is on the device before a program is loaded with it.
func (r *Runtime) NewSlot(state *lora.State) (*Slot, error) {
	s := &Slot{state: state, store: nn.NewStore(r.dev), stale: true}
	if state == nil {
		return s, nil
	}
	j, err := state.Injection()
	if err != nil {
		return nil, err
	}
	s.adapter = j
	return s, nil
}

// State is the adapter as the slot was given it.
func (s *Slot) State() *lora.State { return s.state }

// Bytes is the slot's memory on the device.
func (s *Slot) Bytes() int { return s.store.Bytes() }

// Free gives it back. No program may run with the slot any more.
func (s *Slot) Free() { s.store.Free() }

// fill brings what a program reads of the adapter to the device, where it is not
// there yet.
func (s *Slot) fill(ctx context.Context, d *Draft) error {
	for param, t := range d.constants {
		name, _ := local(param)
		if d.Program.ArgIndex(param) < 0 || s.store.Buffer(name) != nil {
			continue
		}
		if err := s.store.Set(ctx, name, t.Data); err != nil {
			return err
		}
	}
	for _, t := range d.Trained {
		if d.Program.ArgIndex(t.Param) < 0 || s.store.Buffer(t.Name) != nil {
			continue
		}
		if err := s.store.SetFloat32s(ctx, t.Name, s.state.Values[t.Name]); err != nil {
			return err
		}
	}
	return nil
}

// Set overwrites floats of the slot: a parameter by its name in the adapter's
// file, or what a program has made.
func (s *Slot) Set(ctx context.Context, name string, x []float32) error {
	if b := s.store.Buffer(name); b == nil || b.Size() != 4*len(x) {
		return fmt.Errorf("engine: %d elements for %q of a slot, which has not so many", len(x), name)
	}
	return s.store.SetFloat32s(ctx, name, x)
}
