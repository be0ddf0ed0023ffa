package generate

import (
	"context"
	"slices"

	"github.com/lorafuse/lorafuse/engine"
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
	slot, err := g.runtime.NewSlot(state)
	if err != nil {
		return err
	}
	old := []*engine.Program{g.prefill, g.decode}
	now, err := g.load(ctx, slot, g.cache, old)
	if err != nil {
		slot.Free()
		return err
	}
	for _, p := range old {
		if !slices.Contains(now, p) {
			g.runtime.Unload(p)
		}
	}
	g.slot.Free()
	g.prefill, g.decode, g.slot = now[0], now[1], slot
	g.Reset()
	return nil
}

// SetAdapter puts another adapter in the place of the one that the scorer has,
// or none where state is nil. The weights of the model stay where they are;
// programs are compiled again, and the tensors of the adapter brought to the
// device, when they are next asked for. Errors are those of [NewScorer]; the
// scorer then has the adapter that it had.
func (s *Scorer) SetAdapter(state *lora.State) error {
	slot, err := s.runtime.NewSlot(state)
	if err != nil {
		return err
	}
	for _, x := range s.runs {
		s.runtime.Unload(x.Program)
	}
	clear(s.runs)
	s.slot.Free()
	s.slot = slot
	return nil
}
