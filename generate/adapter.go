package generate

import (
	"context"

	"github.com/lorafuse/lorafuse/graph/exec"
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
	h := g.host
	t, err := h.tune(state)
	if err != nil {
		return err
	}
	old := [...]*exec.Executable{g.prefill, g.decode}
	now := old
	for i, max := range [...]int{g.chunk, 1} {
		if now[i], err = h.load(ctx, g.program(max, g.tables, t), t, old[i]); err != nil {
			break
		}
	}
	for i := 0; err == nil && i < len(now); i++ {
		err = h.bind(now[i], g.tables, t)
	}
	gone := old
	if err != nil {
		gone = now
	}
	for i, e := range gone {
		switch {
		case old[i] != now[i]:
			g.drop(e)
		case err != nil: // it may have got arguments of the new adapter
			_ = h.bind(e, g.tables, h.tuned)
		}
	}
	if err != nil {
		t.store.Free()
		return err
	}
	g.prefill, g.decode = now[0], now[1]
	h.retune(t)
	g.Reset()
	return nil
}

// SetAdapter puts another adapter in the place of the one that the scorer has,
// or none where state is nil. The weights of the model stay where they are;
// programs are compiled again, and the tensors of the adapter brought to the
// device, when they are next asked for. Errors are those of [NewScorer]; the
// scorer then has the adapter that it had.
func (s *Scorer) SetAdapter(state *lora.State) error {
	t, err := s.host.tune(state)
	if err != nil {
		return err
	}
	for _, e := range s.runs {
		e.Close()
	}
	clear(s.runs)
	s.host.retune(t)
	return nil
}
