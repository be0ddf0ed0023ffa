package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/internal/nn"
	"github.com/lorafuse/lorafuse/lora"
	"github.com/lorafuse/lorafuse/tensor"
)

// ErrSlot reports that a program cannot run with a slot because its adapter has another shape.
var ErrSlot = errors.New("wrong slot")

// Slot holds an adapter on a device, or none: its parameters, the values computed from them
// and, during training, gradients, moments and losses. A program planned for one slot runs
// with every slot whose adapter has the same shape.
//
// A slot made by [Runtime.NewMultiAdapter] has no memory of its own; each row of a batch uses the
// adapter of one of its parts.
type Slot struct {
	state     *lora.State
	injection *lora.Injection // nil without an adapter
	adapter   nn.Adapter      // the same, or that of a mix
	shape     string          // key of the adapter's properties that programs depend on
	shapes    []string        // of the parts; sizes of positions for plain adapters
	parts     []*Slot         // the slot itself, or the parts of a mix
	store     *Store
	sizes     []lora.FactorType // see Sizes
	fixed     bool              // see Fix
	made      []*Program        // programs whose derived values are up to date with the parameters
	vacant    bool              // see Vacant
}

// NewSlot returns a slot for an adapter, or for none if state is nil. Nothing is on the device
// before a program is loaded with it.
func (r *Runtime) NewSlot(state *lora.State) (*Slot, error) {
	s := &Slot{state: state, store: NewStore(r.dev)}
	s.parts, s.shapes = []*Slot{s}, []string{""}
	if state == nil {
		return s, nil
	}
	j, err := state.Injection()
	if err != nil {
		return nil, err
	}
	s.injection, s.adapter, s.shape, s.sizes = j, j, j.Shape(), j.FactorTypes()
	s.shapes = []string{s.shape}
	return s, nil
}

// Fix declares that nothing changes the slot's parameters or the values of its state from now on.
// The CPU uses these values in place. Call it before the first run.
func (s *Slot) Fix() { s.fixed = true }

// Vacant returns a slot of the same shape without memory, for a position that no row uses.
func (s *Slot) Vacant() *Slot { return &Slot{injection: s.injection, shape: s.shape, vacant: true} }

// NewMultiAdapter returns a slot that mixes others: a row whose input nn.Adapters is i uses the adapter
// of slots[i]. A mix among slots is replaced by its parts. The caller still owns the slots and
// frees them; a slot may be part of several mixes.
func (r *Runtime) NewMultiAdapter(slots ...*Slot) *Slot {
	s := &Slot{store: NewStore(r.dev)}
	var injections []*lora.Injection
	for _, part := range slots {
		s.parts = append(s.parts, part.parts...)
	}
	for _, part := range s.parts {
		injections, s.shapes = append(injections, part.injection), append(s.shapes, part.shape)
	}
	s.adapter = lora.NewMultiAdapter(injections...)
	return s
}

// Positions describes the adapters that a mix can hold, each at a position.
type Positions struct {
	Sizes []lora.FactorType // the first positions, for plain adapters; see [lora.NewOpenMultiAdapter]
	Likes []*Slot           // the other positions: each takes an adapter of the shape of this slot
}

// NewOpenMultiAdapter returns a mix whose adapters may change between runs of one program: slots[i] is at
// position i, and nil leaves a position vacant. A program planned for one mix runs with every mix
// of the same positions.
func (r *Runtime) NewOpenMultiAdapter(positions Positions, slots ...*Slot) *Slot {
	s := &Slot{store: NewStore(r.dev), parts: slices.Clone(slots)}
	injections := make([]*lora.Injection, len(slots))
	for i, part := range slots {
		plain := i < len(positions.Sizes)
		switch {
		case part == nil && plain:
			part = &Slot{vacant: true}
		case part == nil:
			part = positions.Likes[i-len(positions.Sizes)].Vacant()
		}
		shape := part.shape
		if plain {
			shape = positions.Sizes[i].String()
		}
		s.parts[i], injections[i], s.shapes = part, part.injection, append(s.shapes, shape)
	}
	s.adapter = lora.NewOpenMultiAdapter(positions.Sizes, injections...)
	return s
}

// State returns the adapter that the slot was created with, or nil for a mix.
func (s *Slot) State() *lora.State { return s.state }

// Shape returns a key of the adapter's properties that programs depend on. A program planned
// for one slot also runs with other slots of the same shape, alone or in a mix. A mix has no
// shape.
func (s *Slot) Shape() string { return s.shape }

// Sizes returns the sizes of a plain adapter; see [lora.Injection.FactorTypes].
func (s *Slot) Sizes() []lora.FactorType { return s.sizes }

// Bytes returns the slot's memory on the device. A mix has none.
func (s *Slot) Bytes() int { return s.store.Bytes() }

// Free releases the slot's memory. No program may run with the slot afterwards.
func (s *Slot) Free() { s.store.Free() }

// Changed records that the parameters of a slot have changed, so values derived from them are
// computed again.
func (s *Slot) Changed() {
	for _, part := range s.parts {
		part.made = part.made[:0]
	}
}

// fill uploads the tensors of the adapters that a program reads, and the ones read by programs
// that run before it, unless already present.
func (s *Slot) fill(ctx context.Context, d *Draft) error {
	for _, a := range d.args {
		if a.part < 0 {
			continue
		}
		part := s.parts[a.part]
		if name := part.tensor(a); name != "" {
			if err := part.bring(ctx, name, d); err != nil {
				return err
			}
		}
	}
	for i, first := range d.precompute {
		if first == nil || s.parts[i].vacant {
			continue
		}
		if err := s.parts[i].fill(ctx, first); err != nil {
			return err
		}
	}
	return nil
}

// tensor returns the name of the slot's tensor for an argument, or "" if the slot has none.
func (s *Slot) tensor(a arg) string {
	switch {
	case s.vacant, a.factor != nil && s.injection == nil:
		return ""
	case a.factor == nil:
		return a.name
	}
	key, _ := s.injection.FactorKey(*a.factor)
	return key
}

// arrays returns the arrays of a run, with those of the slot's adapters.
func (s *Slot) arrays(given nn.Arrays) nn.Arrays {
	if m, ok := s.adapter.(*lora.MultiAdapter); ok {
		return both{m, given}
	}
	return given
}

// both holds the arrays of a mix and of a batch.
type both struct {
	mix   *lora.MultiAdapter
	given nn.Arrays
}

// Array implements nn.Arrays.
func (b both) Array(name string) ([]byte, bool) {
	if data, ok := b.mix.Array(name); ok {
		return data, true
	}
	return b.given.Array(name)
}

// bring uploads the named tensor of the slot if the adapter, or the model of a draft, has it.
func (s *Slot) bring(ctx context.Context, name string, d *Draft) error {
	if s.store.Buffer(name) != nil {
		return nil
	}
	if s.state != nil {
		if x, ok, err := s.state.Value(name); err != nil {
			return fmt.Errorf("engine: %q of an adapter: %w", name, err)
		} else if ok && s.fixed {
			return s.store.Share(ctx, name, x.Data)
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

// Set overwrites a float32 tensor of the slot: a parameter, named as in the adapter's file, or
// a tensor that a program has written.
func (s *Slot) Set(ctx context.Context, name string, x []float32) error {
	return s.SetBytes(ctx, name, tensor.BytesOf(x))
}

// SetAll overwrites float32 tensors with consecutive parts of x, and waits once for all.
func (s *Slot) SetAll(ctx context.Context, names []string, x []float32) error {
	data := tensor.BytesOf(x)
	fences := make([]backend.Fence, len(names))
	for i, name := range names {
		b := s.store.Buffer(name)
		if b == nil || b.Size() > len(data) {
			return fmt.Errorf("engine: %d bytes for %q of a slot, which has not so many", len(data), name)
		}
		var err error
		if fences[i], err = s.store.dev.Upload(b, 0, data[:b.Size()]); err != nil {
			return fmt.Errorf("engine: %q of a slot: %w", name, err)
		}
		data = data[b.Size():]
	}
	if len(data) > 0 {
		return fmt.Errorf("engine: %d bytes more than the %d tensors of a slot have", len(data), len(names))
	}
	for _, f := range slices.Backward(fences) { // the last ends last
		if err := f.Wait(ctx); err != nil {
			return err
		}
	}
	return nil
}

// SetBytes overwrites a tensor of any element type, as Set does. data has the tensor's memory
// layout.
func (s *Slot) SetBytes(ctx context.Context, name string, data []byte) error {
	if b := s.store.Buffer(name); b == nil || b.Size() != len(data) {
		return fmt.Errorf("engine: %d bytes for %q of a slot, which has not so many", len(data), name)
	}
	return s.store.Set(ctx, name, data)
}
