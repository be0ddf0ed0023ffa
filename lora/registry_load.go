package lora

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/lorafuse/lorafuse/internal/suggest"
	"github.com/lorafuse/lorafuse/tensor"
	"github.com/lorafuse/lorafuse/tokenizer"
)

// errGone is a version that was freed after a table with it was read.
var errGone = errors.New("version is gone")

// load reads an adapter from files in from, and assigns it to name. Without replace it
// does so only if name is unused.
func (r *Registry) load(ctx context.Context, name string, from source, read func() (*Adapter, error), replace bool) (*Version, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	a, err := read()
	if err != nil {
		return nil, unusable(from, err)
	}
	if err := r.checkTokenizer(a); err != nil {
		return nil, unusable(from, err)
	}
	digest, err := a.Digest()
	if err != nil {
		return nil, unusable(from, err)
	}
	return r.enter(ctx, name, from, digest, func() (*State, *Report, error) { return r.build(a) }, replace)
}

// enter assigns the version with the given digest to name, and calls build for its
// state unless it is on the host. Without replace it does so only if name is unused.
func (r *Registry) enter(ctx context.Context, name string, from source, digest Digest, build func() (*State, *Report, error), replace bool) (*Version, error) {
	v, err := r.intern(ctx, digest, build)
	if err != nil {
		return nil, unusable(from, err)
	}
	defer r.unhold(v)
	r.mu.Lock()
	defer r.mu.Unlock()
	err = r.change(func(t *table) error {
		err := t.taken(name)
		if !replace && (err != nil || t.names[name] != nil) {
			return nil
		}
		if err != nil {
			return err
		}
		others := slices.DeleteFunc(slices.Clone(*v.sources.Load()), func(s source) bool { return s == from })
		others = append(others, from)
		v.sources.Store(&others)
		v.used.Store(r.tick())
		t.put(name, v)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return v, nil
}

// intern returns the held version with that digest, and calls build for its state if
// necessary.
func (r *Registry) intern(ctx context.Context, digest Digest, build func() (*State, *Report, error)) (*Version, error) {
	for {
		r.mu.Lock()
		v := r.live[digest]
		if v == nil {
			v = &Version{digest: digest, uploads: make([]int, len(r.options.Slots))}
			v.refs.Store(absent)
			v.retired.Store(true)
			v.sources.Store(&[]source{})
			r.live[digest] = v
		}
		err := r.await(ctx, v, build)
		if !errors.Is(err, ErrChanged) { // of files that others wanted it from
			return v, err
		}
	}
}

// build checks an adapter and builds its state, which does not reference the file.
func (r *Registry) build(a *Adapter) (s *State, report *Report, err error) {
	err = reading(func() error {
		s, report, err = a.state(r.weights, r.modelType, r.modules, CheckOptions{AllowZeroB: a.step})
		return err
	})
	if err != nil {
		return nil, nil, err
	}
	s.adapter, s.Template = nil, a.template
	for _, x := range s.Placement.embeddingBases() {
		if t := s.Base[x.Module]; t != nil {
			s.Base[x.Module] = &tensor.Tensor{DType: t.DType, Shape: t.Shape, Data: slices.Clone(t.Data)}
		}
	}
	return s, report, nil
}

// checkTokenizer refuses an adapter whose folder has a tokenizer with other tokens than the model's,
// which tokenizes all requests.
func (r *Registry) checkTokenizer(a *Adapter) error {
	if r.options.Tokenizer == nil || a.tokenizer == nil {
		return nil
	}
	own, err := tokenizer.Parse(a.tokenizer, a.tokenizerConfig)
	if err == nil {
		err = own.CheckSame(r.options.Tokenizer)
	}
	if err != nil {
		return fmt.Errorf("lora: adapter %s: tokenizer.json: %w; without this file, the adapter is used with the model's tokenizer", a.Dir, err)
	}
	return nil
}

// flight is a pending load of a version or a name.
type flight struct {
	done     chan struct{}
	err      error // when it is done
	waiting  int   // how many want the version; Registry.mu is held for it
	demanded bool  // the name is that of a folder of Root, which was asked for
}

// await holds v. If v is not on the host, it is built first, once for all callers that
// want it at the same time. r.mu must be held; await releases it.
func (r *Registry) await(ctx context.Context, v *Version, build func() (*State, *Report, error)) error {
	if r.table.Load().closed {
		r.collect(v)
		r.mu.Unlock()
		return ErrClosed
	}
	if v.hold() {
		r.mu.Unlock()
		return nil
	}
	f := v.flight
	if f == nil {
		f = &flight{done: make(chan struct{})}
		v.flight = f
		r.loads.Go(func() {
			s, report, err := build()
			if err == nil && r.options.Prepare != nil {
				r.options.Prepare(s)
			}
			r.land(v, s, report, err)
		})
	}
	f.waiting++
	r.mu.Unlock()
	select {
	case <-f.done:
		return f.err
	case <-ctx.Done():
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if v.flight == f {
		f.waiting--
	} else if f.err == nil { // it has landed at the same time
		v.refs.Add(-1)
		r.collect(v)
	}
	return ctx.Err()
}

// land ends a load: all who wait for it hold the version.
func (r *Registry) land(v *Version, s *State, report *Report, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f := v.flight
	v.flight = nil
	if err == nil {
		err = r.makeRoom(s.bytes())
	}
	if err == nil {
		if v.summary == "" {
			v.describe(s, report.Warnings)
		}
		r.bytes += v.bytes
		v.state.Store(s)
		v.used.Store(r.tick())
		v.refs.Store(int64(f.waiting))
	}
	f.err = err
	close(f.done)
	r.collect(v)
}

// revive holds a version that is not on the host, by its files.
func (r *Registry) revive(ctx context.Context, v *Version) error {
	r.mu.Lock()
	if v.gone {
		r.mu.Unlock()
		return errGone
	}
	return r.await(ctx, v, func() (*State, *Report, error) {
		if s := v.published(); s != nil {
			return s.built()
		}
		a, err := v.reread()
		if err != nil {
			return nil, nil, err
		}
		return r.build(a)
	})
}

// published returns the state that a version was published as, or nil.
func (v *Version) published() *State {
	for _, from := range *v.sources.Load() {
		if from.published != nil {
			return from.published
		}
	}
	return nil
}

// built returns a state that was published, which need not be checked again.
func (s *State) built() (*State, *Report, error) { return s, &Report{}, nil }

// reread reads the files of a version again, the latest that are still the same.
func (v *Version) reread() (*Adapter, error) {
	var failed []error
	for _, from := range slices.Backward(*v.sources.Load()) {
		a, err := from.read()
		var digest Digest
		if err == nil {
			digest, err = a.Digest()
		}
		switch {
		case errors.Is(err, errUnknown):
			err = fmt.Errorf("adapter %s: %w", from, fs.ErrNotExist)
		case err == nil && digest == v.digest:
			return a, nil
		case err == nil:
			err = fmt.Errorf("adapter %s: found version %s; load it to use it", from, digest.Short())
		}
		failed = append(failed, err)
	}
	return nil, fmt.Errorf("lora: version %s: %w since it was loaded: %w", v.digest.Short(), ErrChanged, errors.Join(failed...))
}

// begin marks a name as being loaded. r.mu is held.
func (r *Registry) begin(name string) *flight {
	f := &flight{done: make(chan struct{})}
	r.pending[name] = f
	return f
}

// end marks the load of a name as finished.
func (r *Registry) end(name string, f *flight, err error) {
	r.mu.Lock()
	if r.pending[name] == f {
		delete(r.pending, name)
	}
	r.mu.Unlock()
	f.err = err
	close(f.done)
}

// expect waits for a pending load of a name that is not in the table, or starts a load.
// Its source is the folder that Find returns or the folder of that name in Root. The
// caller then looks up the name again. It fails with errUnknown if there is no source
// for the name.
func (r *Registry) expect(ctx context.Context, name string) error {
	from := source{root: r.options.Root, dir: name}
	lies := r.options.Root != "" && !strings.Contains(name, "/")
	if r.options.Find != nil {
		if dir, ok := r.options.Find(name); ok {
			from, lies = source{dir: dir, step: true}, true
		}
	}
	r.mu.Lock()
	f := r.pending[name]
	if f == nil {
		t := r.table.Load()
		var err error
		switch {
		case t.closed:
			err = ErrClosed
		case t.names[name] != nil || t.aliases[name] != reference{}:
			r.mu.Unlock()
			return nil
		case !lies:
			err = errUnknown
		}
		if err != nil {
			r.mu.Unlock()
			return err
		}
		f = r.begin(name)
		f.demanded = true
		ctx := context.WithoutCancel(ctx)
		r.loads.Go(func() {
			var files []fs.FileInfo
			if from.root != "" {
				files = r.lookFolder(name)
			}
			_, err := r.load(ctx, name, from, from.read, false)
			if files != nil {
				r.noteFolder(name, files, err)
			}
			r.end(name, f, err)
		})
	}
	r.mu.Unlock()
	select {
	case <-f.done:
	case <-ctx.Done():
		return ctx.Err()
	}
	if f.demanded {
		return f.err
	}
	return nil
}

// nearest returns the names similar to name, from the table and the folders of Root.
func (r *Registry) nearest(name string) string {
	t := r.table.Load()
	var known []string
	for name := range t.names {
		known = append(known, name)
	}
	for alias := range t.aliases {
		known = append(known, alias)
	}
	if r.options.Root != "" {
		folders, _ := os.ReadDir(r.options.Root)
		for _, f := range folders {
			if f.IsDir() && CheckName(f.Name()) == nil {
				known = append(known, f.Name())
			}
		}
	}
	return suggest.DidYouMean(name, known)
}
