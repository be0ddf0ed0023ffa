package generate

import (
	"context"
	"slices"

	"github.com/lorafuse/lorafuse/lora"
)

// SetAdapter puts another adapter in the place of the one that the generator
// has, or none where state is nil. The weights of the model stay where they
// are: the tensors of the adapter alone are brought to the device, and the
// programs are compiled again only where they differ, in their ranks, scales or
// targets. The last text is forgotten, since its keys and values were computed
// with the old adapter.
//
// Errors are those of [New]; the generator then has the adapter that it had.
func (g *Generator) SetAdapter(ctx context.Context, state *lora.State) error {
	slot, err := g.host.NewSlot(state)
	if err != nil {
		return err
	}
	programs, err := g.host.Programs(ctx, slot, g.specs[:]...)
	if err != nil {
		slot.Free()
		return err
	}
	for _, p := range g.programs {
		if !slices.Contains(programs, p) {
			g.host.Unload(p)
		}
	}
	g.slot.Free()
	g.programs, g.slot = programs, slot
	g.Reset()
	return nil
}

// SetAdapter puts another adapter in the place of the one that the scorer has,
// or none where state is nil. The weights of the model stay where they are; the
// tensors of the adapter are brought to the device when it next runs, and
// programs are compiled for ranks, scales or targets that are new. Errors are
// those of [NewScorer]; the scorer then has the adapter that it had.
func (s *Scorer) SetAdapter(state *lora.State) error {
	slot, err := s.host.NewSlot(state)
	if err != nil {
		return err
	}
	s.slot.Free()
	s.slot = slot
	return nil
}
