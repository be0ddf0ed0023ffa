package host

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/engine"
)

// ErrName is wrapped if a program without a name is asked for.
var ErrName = errors.New("no name")

// cached is a program that is kept, with what it is known by.
type cached struct {
	spec    engine.Spec // without Build
	program *engine.Program
}

// is reports whether the program is the one of a spec for a slot: the same name, bounds and
// mode, and a slot of a shape that it was planned for.
func (c *cached) is(s *engine.Slot, spec engine.Spec) bool {
	k := &c.spec
	return k.Name == spec.Name && k.Training == spec.Training && k.RowKeys == spec.RowKeys && k.Whole == spec.Whole &&
		k.Cache == spec.Cache && k.Page == spec.Page && maps.Equal(k.Bounds, spec.Bounds) && c.program.Fits(s)
}

// Program returns the program of a spec, which runs with s and all slots of its shape. It is
// planned and compiled unless it is cached: programs are known by name, bounds and shape of the
// slot, so specs that differ in what Build emits need different names. The program may be
// unloaded when another one is asked for. Errors: ErrName, those of the formulas and of the
// device.
func (h *Host) Program(ctx context.Context, s *engine.Slot, spec engine.Spec) (*engine.Program, error) {
	if p := h.find(s, spec); p != nil {
		return p, nil
	}
	ps, err := h.Programs(ctx, s, spec)
	if err != nil {
		return nil, err
	}
	return ps[0], nil
}

// Programs is Program for several, of which none is unloaded for another, and which share an
// arena if they are new. All that they read of s is on the device then.
func (h *Host) Programs(ctx context.Context, s *engine.Slot, specs ...engine.Spec) ([]*engine.Program, error) {
	ps := make([]*engine.Program, len(specs))
	var missing []int
	var drafts []*engine.Draft
	for i, spec := range specs {
		if ps[i] = h.find(s, spec); ps[i] != nil {
			if err := ps[i].Bring(ctx, s); err != nil {
				return nil, err
			}
			continue
		}
		if spec.Name == "" {
			return nil, fmt.Errorf("host: a program has %w", ErrName)
		}
		d, err := h.Plan(s, spec)
		if err != nil {
			return nil, err
		}
		missing, drafts = append(missing, i), append(drafts, d)
	}
	if len(drafts) == 0 {
		return ps, nil
	}
	h.makeRoom(h.NewArena(drafts...), len(drafts), ps)
	loaded, err := h.Load(ctx, s, h.named(specs), drafts...)
	if errors.Is(err, backend.ErrOutOfMemory) && h.evict(ps) {
		for h.evict(ps) {
		}
		loaded, err = h.Load(ctx, s, h.named(specs), drafts...)
	}
	if err != nil {
		return nil, err
	}
	for j, i := range missing {
		ps[i] = loaded[j]
		if h.find(s, specs[i]) == nil { // else it was compiled for a slot of another shape
			key := specs[i]
			key.Build = nil
			h.programs = append(h.programs, cached{key, loaded[j]})
		}
	}
	return ps, nil
}

// find returns a cached program, and notes that it is used.
func (h *Host) find(s *engine.Slot, spec engine.Spec) *engine.Program {
	for i := range h.programs {
		if c := h.programs[i]; c.is(s, spec) {
			copy(h.programs[i:], h.programs[i+1:])
			h.programs[len(h.programs)-1] = c
			return c.program
		}
	}
	return nil
}

// named returns the programs of the names of specs, one of which may do for a slot of another
// shape: it is compiled once if its plan is the same.
func (h *Host) named(specs []engine.Spec) (ps []*engine.Program) {
	for _, c := range h.programs {
		if slices.ContainsFunc(specs, func(s engine.Spec) bool { return s.Name == c.spec.Name }) {
			ps = append(ps, c.program)
		}
	}
	return ps
}

// makeRoom unloads programs until n more may be cached, in new arenas of so many bytes, 0 if
// they fit into those there are. Those in use stay.
func (h *Host) makeRoom(bytes int64, n int, use []*engine.Program) {
	for bytes > 0 && h.Cached()+bytes > max(h.budget, bytes) && h.evict(use) {
	}
	for len(h.programs)+n > maxPrograms {
		i := slices.IndexFunc(h.programs, func(c cached) bool { return !slices.Contains(use, c.program) })
		if i < 0 {
			return
		}
		h.Unload(h.programs[i].program)
	}
}

// Cached returns the memory of the arenas of cached programs, in bytes.
func (h *Host) Cached() (bytes int64) {
	for _, p := range h.arenas() {
		bytes += p.Arena()
	}
	return bytes
}

// arenas returns one program of each arena, the one that was used last. The arena that was
// used longest ago is last.
func (h *Host) arenas() (ps []*engine.Program) {
	for _, c := range slices.Backward(h.programs) {
		if !slices.ContainsFunc(ps, c.program.SharesArena) {
			ps = append(ps, c.program)
		}
	}
	return ps
}

// evict unloads the programs of the arena that was used longest ago. It returns false if each
// arena is in use.
func (h *Host) evict(use []*engine.Program) bool {
	for _, oldest := range slices.Backward(h.arenas()) {
		if !slices.ContainsFunc(use, func(p *engine.Program) bool { return p != nil && p.SharesArena(oldest) }) {
			h.UnloadFunc(func(_ string, p *engine.Program) bool { return oldest.SharesArena(p) })
			return true
		}
	}
	return false
}

// Unload frees programs, cached ones too.
func (h *Host) Unload(ps ...*engine.Program) {
	h.UnloadFunc(func(_ string, p *engine.Program) bool { return slices.Contains(ps, p) })
	h.Runtime.Unload(ps...)
}

// UnloadFunc frees the cached programs, each known by a name, that which reports true for.
func (h *Host) UnloadFunc(which func(name string, p *engine.Program) bool) {
	h.programs = slices.DeleteFunc(h.programs, func(c cached) bool {
		if !which(c.spec.Name, c.program) {
			return false
		}
		h.Runtime.Unload(c.program)
		return true
	})
}
