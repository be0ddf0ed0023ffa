package engine

import (
	"context"
	"errors"
	"fmt"

	"github.com/lorafuse/lorafuse/lora"
	"github.com/lorafuse/lorafuse/nn"
	"github.com/lorafuse/lorafuse/tensor"
)

// ErrSlot: a program cannot run with a slot, whose adapter has another shape.
var ErrSlot = errors.New("wrong slot")

// Slot holds an adapter on a device, or none: its parameters and what is made of
// them, and where it is trained, gradients, moments and losses. Programs that were
// planned for one slot run with every slot whose adapter has the same shape.
//
// A slot that mixes others holds nothing itself: each row of a batch has the adapter
// of one of them.
type Slot struct {
	state     *lora.State
	injection *lora.Injection // nil where there is no adapter
	adapter   nn.Adapter      // the same, or that of a mix
	shape     string          // what programs depend on of the adapter
	parts     []*Slot         // the slot alone, or those that it mixes
	store     *Store
	made      []*Program // that have made of the parameters what they make, since these have changed
}

// NewSlot prepares a slot for an adapter, or for none where state is nil. Nothing
// is on the device before a program is loaded with it.
func (r *Runtime) NewSlot(state *lora.State) (*Slot, error) {
	s := &Slot{state: state, store: NewStore(r.dev)}
	s.parts = []*Slot{s}
	if state == nil {
		return s, nil
	}
	j, err := state.Injection()
	if err != nil {
		return nil, err
	}
	s.injection, s.adapter, s.shape = j, j, j.Shape()
	return s, nil
}

// NewMix is a slot that mixes others: number i of the input nn.Adapters is the adapter
// of slots[i], of a slot that mixes others itself those of all its parts. The slots
// stay the caller's, to be freed, and may be parts of several mixes.
func (r *Runtime) NewMix(slots ...*Slot) *Slot {
	s := &Slot{store: NewStore(r.dev)}
	var injections []*lora.Injection
	for _, part := range slots {
		s.parts = append(s.parts, part.parts...)
	}
	for _, part := range s.parts {
		injections = append(injections, part.injection)
	}
	s.adapter = lora.NewMix(injections...)
	return s
}

// State is the adapter as the slot was given it, nil for a mix.
func (s *Slot) State() *lora.State { return s.state }

// Shape says what programs depend on of the adapter: where slots of one shape take each
// other's place, alone or in a mix, the program that was planned for one fits. A mix has
// none of its own.
func (s *Slot) Shape() string { return s.shape }

// Bytes is the slot's memory on the device; a mix has none of its own.
func (s *Slot) Bytes() int { return s.store.Bytes() }

// Free gives it back. No program may run with the slot any more.
func (s *Slot) Free() { s.store.Free() }

// Changed says that the parameters of a slot are no longer what they were.
func (s *Slot) Changed() {
	for _, part := range s.parts {
		part.made = part.made[:0]
	}
}

// fill brings what a program, and what makes things for it, read of the adapters to
// the device, where it is not there yet.
func (s *Slot) fill(ctx context.Context, d *Draft) error {
	for _, a := range d.Program.Args {
		if i, name, ok := local(a.Name); ok {
			if err := s.parts[i].bring(ctx, name, d); err != nil {
				return err
			}
		}
	}
	for i, first := range d.precompute {
		if first == nil {
			continue
		}
		if err := s.parts[i].fill(ctx, first); err != nil {
			return err
		}
	}
	return nil
}

// bring brings what is called name in the slot to the device, if it is something that
// the adapter or the model of a draft has.
func (s *Slot) bring(ctx context.Context, name string, d *Draft) error {
	if s.store.Buffer(name) != nil {
		return nil
	}
	if s.state != nil {
		if x, ok, err := s.state.Value(name); err != nil {
			return fmt.Errorf("engine: %q of an adapter: %w", name, err)
		} else if ok {
			return s.store.Set(ctx, name, x.Data)
		}
		if t := s.injection.Constant(name); t != nil {
			return s.store.Set(ctx, name, t.Data)
		}
	}
	if t := d.constants[SlotPrefix+name]; t != nil { // of the model, not of the adapter
		return s.store.Set(ctx, name, t.Data)
	}
	return nil
}

// Set overwrites floats of the slot: a parameter by its name in the adapter's
// file, or what a program has made.
func (s *Slot) Set(ctx context.Context, name string, x []float32) error {
	return s.SetBytes(ctx, name, tensor.BytesOf(x))
}

// SetBytes is Set for elements of any type, as they lie in memory.
func (s *Slot) SetBytes(ctx context.Context, name string, data []byte) error {
	if b := s.store.Buffer(name); b == nil || b.Size() != len(data) {
		return fmt.Errorf("engine: %d bytes for %q of a slot, which has not so many", len(data), name)
	}
	return s.store.Set(ctx, name, data)
}
