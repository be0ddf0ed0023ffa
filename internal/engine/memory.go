package engine

import (
	"slices"

	"github.com/lorafuse/lorafuse/backend"
)

// arena is the working memory of programs of a runtime. Programs use it one after another, and
// nothing in it outlives a run.
type arena struct {
	buffer backend.Buffer
	users  int // programs, and calls that load some
}

// arena returns memory for the largest of the programs: the smallest existing arena that is
// large enough, or a new one. It returns nil if each program has its own arena. The caller
// must release it.
func (r *Runtime) arena(drafts []*Draft) (best *arena, err error) {
	if r.memory == nil || len(drafts) == 0 {
		return nil, nil
	}
	bytes := int(r.arenaBytes(drafts))
	r.mu.Lock()
	defer r.mu.Unlock()
	if best = r.room(bytes); best == nil {
		b, err := r.dev.Alloc(bytes)
		if err != nil {
			return nil, err
		}
		best = &arena{buffer: b}
		r.arenas = append(r.arenas, best)
	}
	best.users++
	return best, nil
}

// room returns the smallest arena of at least the given size, or nil if there is none.
func (r *Runtime) room(bytes int) (best *arena) {
	for _, a := range r.arenas {
		if a.buffer.Size() >= bytes && (best == nil || a.buffer.Size() < best.buffer.Size()) {
			best = a
		}
	}
	return best
}

// NewArena returns the arena memory, in bytes, that loading drafts would add. It is 0 if an
// existing arena is large enough.
func (r *Runtime) NewArena(drafts ...*Draft) int64 {
	bytes := r.arenaBytes(drafts)
	if r.memory == nil {
		return bytes
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.room(int(bytes)) != nil {
		return 0
	}
	return bytes
}

// hold adds a user to an arena, which may be nil.
func (r *Runtime) hold(a *arena) *arena {
	if a != nil {
		r.mu.Lock()
		defer r.mu.Unlock()
		a.users++
	}
	return a
}

// release frees an arena, which may be nil, after its last user.
func (r *Runtime) release(a *arena) {
	if a == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if a.users--; a.users == 0 {
		r.arenas = slices.DeleteFunc(r.arenas, func(x *arena) bool { return x == a })
		a.buffer.Free()
	}
}

// result is the memory of a result, which programs share that write one of its name and size.
type result struct {
	name   string
	bytes  int
	buffer backend.Buffer
	users  int
}

// result returns the memory of a result for one more program.
func (r *Runtime) result(name string, bytes int) (*result, error) {
	i := slices.IndexFunc(r.results, func(x *result) bool { return x.name == name && x.bytes == bytes })
	if i < 0 {
		b, err := r.dev.Alloc(bytes)
		if err != nil {
			return nil, err
		}
		i = len(r.results)
		r.results = append(r.results, &result{name: name, bytes: bytes, buffer: b})
	}
	r.results[i].users++
	return r.results[i], nil
}

// forget frees the memory of a result after the last program that writes it.
func (r *Runtime) forget(x *result) {
	if x.users--; x.users == 0 {
		r.results = slices.DeleteFunc(r.results, func(other *result) bool { return other == x })
		x.buffer.Free()
	}
}
