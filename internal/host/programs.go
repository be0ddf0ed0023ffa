package host

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/internal/engine"
)

// ErrName reports a spec without a name.
var ErrName = errors.New("no name")

// cached is a cached program with its key.
type cached struct {
	spec    engine.Spec // without Build
	program *engine.Program
	holders []*engine.Slot // see Hold
}

// is reports whether the program can be reused for a spec and a slot. Name, bounds and mode
// must be equal, and the slot must have a shape that the program was planned for.
func (c *cached) is(s *engine.Slot, spec engine.Spec) bool {
	k := &c.spec
	return k.Name == spec.Name && k.Training == spec.Training && k.RowKeys == spec.RowKeys && k.Whole == spec.Whole &&
		k.Cache == spec.Cache && k.Page == spec.Page && maps.Equal(k.Bounds, spec.Bounds) && c.program.Fits(s)
}

// Program returns the program of a spec, which runs with s and all slots of the same shape.
// Unless it is cached, it is planned and compiled. The cache key is the name, the bounds and
// the shape of the slot, so specs that differ in what Build emits need different names. A
// later call may unload the program. Errors: ErrName, and errors of Build and of the device.
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

// Programs returns the programs of several specs, as Program does. They are loaded at the same
// time, and new ones share an arena. Every tensor of s that they read is uploaded before it
// returns.
func (h *Host) Programs(ctx context.Context, s *engine.Slot, specs ...engine.Spec) ([]*engine.Program, error) {
	ps := make([]*engine.Program, len(specs))
	var missing []int
	var placed []engine.Placed
	for i, spec := range specs {
		if ps[i] = h.find(s, spec); ps[i] != nil {
			if err := ps[i].Bring(ctx, s); err != nil {
				return nil, err
			}
			continue
		}
		d, err := h.Plan(s, spec)
		if err != nil {
			return nil, err
		}
		missing, placed = append(missing, i), append(placed, engine.Placed{Slot: s, Draft: d})
	}
	loaded, err := h.load(ctx, ps, placed)
	if err != nil {
		return nil, err
	}
	for j, i := range missing {
		ps[i] = loaded[j]
	}
	return ps, nil
}

// Hold loads planned programs in one arena, as Programs does, and attaches their slots. The
// programs stay loaded until their slots are detached.
func (h *Host) Hold(ctx context.Context, all ...engine.Placed) ([]*engine.Program, error) {
	ps, err := h.load(ctx, nil, all)
	if err != nil {
		return nil, err
	}
	for i, x := range all {
		if !slices.Contains(h.attached, x.Slot) {
			h.attached = append(h.attached, x.Slot)
		}
		for j := range h.programs {
			if c := &h.programs[j]; c.program == ps[i] {
				c.holders = append(c.holders, x.Slot)
			}
		}
	}
	return ps, nil
}

// load returns the programs of drafts. Those that are not cached are compiled, after making
// room without unloading programs in use, and cached.
func (h *Host) load(ctx context.Context, use []*engine.Program, all []engine.Placed) ([]*engine.Program, error) {
	var drafts []*engine.Draft
	for _, x := range all {
		if x.Draft.Spec().Name == "" {
			return nil, fmt.Errorf("host: a program has %w", ErrName)
		}
		drafts = append(drafts, x.Draft)
	}
	if len(drafts) == 0 {
		return nil, nil
	}
	h.makeRoom(h.NewArena(drafts...), len(drafts), use)
	ps, err := h.LoadAll(ctx, h.named(drafts), all...)
	if errors.Is(err, backend.ErrOutOfMemory) && h.evict(use) {
		for h.evict(use) {
		}
		ps, err = h.LoadAll(ctx, h.named(drafts), all...)
	}
	if err != nil {
		return nil, err
	}
	for i, x := range all {
		spec := x.Draft.Spec()
		switch h.find(x.Slot, spec) {
		case ps[i]: // compiled for a slot of another shape, or for another spec
		case nil:
			spec.Build = nil
			h.programs = append(h.programs, cached{spec: spec, program: ps[i]})
		default:
			h.Runtime.Unload(ps[i])
			return nil, fmt.Errorf("host: %w: two programs are called %q", ErrName, spec.Name)
		}
	}
	return ps, nil
}

// Prepare plans and compiles the program of a spec for slots like s. Another goroutine may call
// it while the host is in use. The result must be given to Keep or dropped. Errors: those of
// Build and of the device.
func (h *Host) Prepare(s *engine.Slot, spec engine.Spec) (*engine.Draft, error) {
	d, err := h.Plan(s, spec)
	if err != nil {
		return nil, err
	}
	return d, h.Runtime.Prepare(d)
}

// Keep caches a prepared program, which later calls of Program return, and uploads every tensor
// of s that it reads.
func (h *Host) Keep(ctx context.Context, s *engine.Slot, prepared *engine.Draft) error {
	_, err := h.load(ctx, nil, []engine.Placed{{Slot: s, Draft: prepared}})
	prepared.Drop() // unless it was loaded
	return err
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

// named returns the cached programs with the names of drafts. If one of them, compiled for a
// slot of another shape, has the same plan, it is reused instead of compiled again.
func (h *Host) named(drafts []*engine.Draft) (ps []*engine.Program) {
	for _, c := range h.programs {
		if slices.ContainsFunc(drafts, func(d *engine.Draft) bool { return d.Spec().Name == c.spec.Name }) {
			ps = append(ps, c.program)
		}
	}
	return ps
}

// makeRoom unloads programs until n more fit into the cache, in new arenas of the given size.
// bytes is 0 if they fit into existing arenas. Programs in use and held ones are kept.
func (h *Host) makeRoom(bytes int64, n int, use []*engine.Program) {
	for bytes > 0 && h.Cached()+bytes > max(h.budget, bytes) && h.evict(use) {
	}
	for len(h.programs)+n > maxPrograms {
		i := slices.IndexFunc(h.programs, func(c cached) bool { return len(c.holders) == 0 && !slices.Contains(use, c.program) })
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
// arena has a program that is in use or held.
func (h *Host) evict(use []*engine.Program) bool {
	for _, c := range h.programs {
		if len(c.holders) > 0 {
			use = append(slices.Clip(use), c.program)
		}
	}
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
