package train

import (
	"context"

	"github.com/lorafuse/lorafuse/internal/engine"
)

// drafts returns the programs of the engine, without the one that it shares with others.
func (e *Engine) drafts() []*engine.Draft {
	all := e.plan.drafts()
	if e.fused() {
		return all[1:] // except micro-batches
	}
	return all
}

// fused reports whether micro-batches are computed in passes shared with other engines.
func (e *Engine) fused() bool { return e.company != nil && e.company.fused }

// placed lists the programs of engines with the slots for which they were planned. shared is
// the pass that some of the engines share, or nil.
func placed(engines []*Engine, shared *mixed) (all []engine.Placed) {
	if shared != nil {
		all = append(all, engine.Placed{Slot: shared.slot, Draft: shared.draft})
	}
	for _, e := range engines {
		for _, d := range e.drafts() {
			slot := e.planner.slot
			if d == e.plan.reference {
				slot = e.planner.bare
			}
			all = append(all, engine.Placed{Slot: slot, Draft: d})
		}
	}
	return all
}

// measure returns the memory plan of engines that are loaded together.
func measure(engines []*Engine, shared *mixed) (Memory, error) {
	last := engines[len(engines)-1] // planned last, with the data of all in the process
	m, h := last.planner.common(), last.planner.host
	for _, e := range engines {
		m.add(e.plan, e.drafts(), e.opts.Optimizer)
		m.Samples = max(m.Samples, e.opts.Samples)
	}
	if shared != nil {
		m.Activations = max(m.Activations, int64(shared.draft.Program.Arena))
	}
	var drafts []*engine.Draft
	for _, x := range placed(engines, shared) {
		drafts = append(drafts, x.Draft)
	}
	if err := m.need(h, drafts); err != nil || last.planner.base != nil && last.company == nil { // the base decides about packing
		return m, err
	}
	var err error
	m.Packed, err = h.Pack(engines[0].opts.Pack, engines[0].opts.PackLimit, drafts...)
	return m, err
}

// load compiles the programs of engines in one arena, if their memory plan fits.
func load(ctx context.Context, engines []*Engine, shared *mixed) error {
	m, err := measure(engines, shared)
	if err != nil {
		return err
	}
	h := engines[0].planner.host
	if err := m.check(h.Info(), engines[0].opts.MemoryLimit); err != nil {
		return err
	}
	programs, err := h.Hold(ctx, placed(engines, shared)...)
	if err != nil {
		return err
	}
	if shared != nil {
		shared.program, programs = programs[0], programs[1:]
	}
	for _, e := range engines {
		if e.memory, e.program = m, programs[0]; e.fused() {
			e.program = shared.program
		}
		programs = programs[len(e.drafts()):]
	}
	return nil
}
