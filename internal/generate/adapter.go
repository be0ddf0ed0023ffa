package generate

import (
	"context"
	"slices"

	"github.com/lorafuse/lorafuse/lora"
)

// SetAdapter replaces the generator's adapter; a nil state removes it. The weights of the
// model stay on the device. Only the tensors of the adapter are uploaded, and programs are
// recompiled only if ranks, scales or targets differ. The cached text is discarded, since its
// keys and values were computed with the old adapter.
//
// Errors are the same as for [New]; after an error the generator keeps its adapter.
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

// SetAdapter replaces the scorer's adapter; a nil state removes it. The weights of the model
// stay on the device. The tensors of the adapter are uploaded by the next run, and programs
// are compiled for new ranks, scales or targets. Errors are the same as for [NewScorer]; after
// an error the scorer keeps its adapter.
func (s *Scorer) SetAdapter(state *lora.State) error {
	slot, err := s.host.NewSlot(state)
	if err != nil {
		return err
	}
	s.slot.Free()
	s.slot = slot
	return nil
}
