package lora

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lorafuse/lorafuse/nn"
	"github.com/lorafuse/lorafuse/tokenizer"
)

// Registry keeps adapters of one model by name: what requests name, and operators
// load, swap and unload while others of their requests are under way.
//
// What a name stands for is a [Version], which is identified by its bytes. To load
// is an event: the files are read once, into memory, all of them are checked (see
// [Adapter.Check]), and what becomes of the files later changes nothing. Adapters
// of the same bytes are one version, whatever they are called.
//
// A version lies on the disk, on the host, or on the host and on the device. What
// has not been used for the longest time gives way to what is asked for; what is
// leased or pinned does not. A version that has gone to the disk is read again when
// it is asked for, and must be what it was.
//
// A reference is a name, an alias, or either with the first hexadecimal digits of a
// version's digest, as in "support@3f2a". Names have letters, digits and . _ / -;
// no part of them between slashes is empty or begins with a dot, nor is there ".."
// in them.
//
// A name whose load is under way is waited for by those who want to lease it. All
// that changes what names stand for is about what is loaded, on the disk or not.
//
// A Registry is safe for concurrent use. Acquire of a version on the host, Release
// and List take no lock.
type Registry struct {
	weights   nn.Weights
	modelType string
	modules   []nn.Module
	options   RegistryOptions

	table atomic.Pointer[table] // what readers see; replaced as a whole
	clock atomic.Int64          // of uses

	mu       sync.Mutex // held for all changes, and for what follows
	live     map[Digest]*Version
	pending  map[string]*flight // loads of names, the latest of each
	bytes    int64              // on the host
	resident int                // on the device
	loads    sync.WaitGroup

	foldersMu sync.Mutex
	folders   map[string]folderState // folders of Root by name
}

// RegistryOptions are the limits of a registry. The zero value has none.
type RegistryOptions struct {
	// Root is a folder whose folders are adapters that are loaded when they are
	// first asked for, by the name of the folder. Links that lead out of Root are
	// not followed. Empty is none.
	Root string
	// Find gives the folder of an adapter that is loaded when it is first asked for, by a
	// name that nothing else is known of; it goes before Root, and is loaded as by
	// LoadStep. It may be called at any time, by several goroutines, and must not call the
	// registry. nil finds none.
	Find func(name string) (dir string, ok bool)
	// Tokenizer is that of the model. An adapter whose folder has a tokenizer with other tokens
	// gets a warning: requests are tokenized for the model. nil compares nothing.
	Tokenizer *tokenizer.Tokenizer
	// HostBytes is the memory for adapters on the host; 0 is no limit. The file of an
	// adapter comes beside it while that is loaded.
	HostBytes int64
	// Former is how many versions a name keeps beside its current one. Those that are
	// pinned or have an alias stay in any case.
	Former int
	// Slots is the device, nil where there is none, and MaxResident how many versions
	// may lie there; 0 is no limit.
	Slots       Slots
	MaxResident int
}

// Slots are the places of adapters on a device. A registry calls one method at a
// time and holds its lock meanwhile: neither may call the registry, nor wait for
// anything that does.
type Slots interface {
	// Put brings a version to the device, whose state is on the host as long as it
	// is there. Where it fails the version is not there.
	Put(ctx context.Context, v *Version) error
	// Drop takes it away again. No lease uses it there any more.
	Drop(v *Version)
}

// NewRegistry is an empty registry of adapters for a model: see [LoadState] for its
// first three arguments. w must be safe for concurrent use. It fails where Root is
// no folder.
func NewRegistry(w nn.Weights, modelType string, modules []nn.Module, o RegistryOptions) (*Registry, error) {
	if o.Root != "" {
		root, err := filepath.Abs(o.Root)
		if err == nil {
			var folder *os.Root
			if folder, err = os.OpenRoot(root); err == nil {
				err = folder.Close()
			}
		}
		if err != nil {
			return nil, fmt.Errorf("lora: root of adapters: %w", err)
		}
		o.Root = root
	}
	r := &Registry{
		weights: w, modelType: modelType, modules: modules, options: o,
		live: map[Digest]*Version{}, pending: map[string]*flight{},
	}
	r.table.Store(&table{})
	return r, nil
}

// Load loads the adapter in dir and has name stand for it from then on. What the
// name stood for stays with those who have it, and for references by version as
// long as Former says. Where the bytes are those of a version that is on the host,
// there is no second copy. It reads safetensors files alone.
//
// It fails with ErrName, with ErrTaken where name is an alias, with ErrChanged where
// the files change while they are read, with ErrFull where the host has no room,
// with the error of ctx, which ends the wait but not the reading of files, and as
// [LoadState] does; then nothing has changed.
func (r *Registry) Load(ctx context.Context, name, dir string) (*Version, error) {
	return r.loadFrom(ctx, name, source{dir: dir})
}

// LoadStep is Load of a step of an adapter that is being trained: it may do nothing, as all
// of its B is zero before training.
func (r *Registry) LoadStep(ctx context.Context, name, dir string) (*Version, error) {
	return r.loadFrom(ctx, name, source{dir: dir, step: true})
}

func (r *Registry) loadFrom(ctx context.Context, name string, from source) (_ *Version, err error) {
	if err := CheckName(name); err != nil {
		return nil, err
	}
	if from.dir, err = filepath.Abs(from.dir); err != nil {
		return nil, fmt.Errorf("lora: load %q: %w", name, err)
	}
	return r.replace(name, func() (*Version, error) { return r.load(ctx, name, from, from.read, true) })
}

// Add is Load of an adapter that is open, of whatever file, and fails as Load does. None
// of its memory is kept. A version that has gone to the disk is read again from a.Dir, as
// Load reads.
func (r *Registry) Add(ctx context.Context, name string, a *Adapter) (*Version, error) {
	if err := CheckName(name); err != nil {
		return nil, err
	}
	dir, err := filepath.Abs(a.Dir)
	if err != nil {
		return nil, fmt.Errorf("lora: load %q: %w", name, err)
	}
	return r.replace(name, func() (*Version, error) {
		return r.load(ctx, name, source{dir: dir}, func() (*Adapter, error) { return a, nil }, true)
	})
}

// Publish has name stand for a step of an adapter that is being trained, without a file. The
// registry keeps s, which must not change any more, until no name stands for it. It may do
// nothing yet. identity takes the place of the digest of its bytes: the caller gives every
// state one of its own. Errors: ErrName, ErrTaken, ErrFull, that of ctx.
func (r *Registry) Publish(ctx context.Context, name, identity string, s *State) (*Version, error) {
	if err := CheckName(name); err != nil {
		return nil, err
	}
	digest := Digest(sha256.Sum256([]byte("lorafuse published state 1\x00" + identity)))
	return r.replace(name, func() (*Version, error) {
		return r.enter(ctx, name, source{published: s}, digest, s.built, true)
	})
}

// LoadBelow is Load of a folder of Root, which may be named as it lies in Root or by its
// whole path. Links that lead out of Root are not followed. It fails with ErrNotFound
// where Root has no such folder, or there is no Root.
func (r *Registry) LoadBelow(ctx context.Context, name, dir string) (*Version, error) {
	if err := CheckName(name); err != nil {
		return nil, err
	}
	unknown := fmt.Errorf("lora: load %q: %w below %q: %.200q", name, ErrNotFound, r.options.Root, dir)
	if filepath.IsAbs(dir) {
		below, err := filepath.Rel(r.options.Root, dir)
		if err != nil {
			return nil, unknown
		}
		dir = below
	}
	if r.options.Root == "" || !filepath.IsLocal(dir) {
		return nil, unknown
	}
	from := source{root: r.options.Root, dir: filepath.Clean(dir)}
	v, err := r.replace(name, func() (*Version, error) { return r.load(ctx, name, from, from.read, true) })
	if errors.Is(err, errUnknown) {
		return nil, unknown
	}
	return v, err
}

// replace has name stand for what load gives; those who ask for name meanwhile wait for it.
func (r *Registry) replace(name string, load func() (*Version, error)) (*Version, error) {
	r.mu.Lock()
	if err := r.table.Load().taken(name); err != nil {
		r.mu.Unlock()
		return nil, err
	}
	f := r.begin(name)
	r.mu.Unlock()
	v, err := load()
	r.end(name, f, err)
	return v, err
}

// Unload forgets a name with all its versions, or one version of it, whose place
// the latest of the others takes, and the pins and aliases of what it forgets. Of an
// alias it forgets the alias alone. Memory is free when the last lease is released.
// It fails with ErrName and ErrNotFound.
func (r *Registry) Unload(ref string) error {
	return r.edit(ref, func(t *table, want reference) error {
		if _, ok := t.aliases[want.name]; ok && want.version == "" {
			delete(t.aliases, want.name)
			return nil
		}
		found, v, err := t.find(want)
		if err == nil {
			t.forget(found.name, v, want.version == "")
		}
		return err
	})
}

// Alias has another name stand for what ref does: for the current version of a name
// whenever it is asked for, or for one version, which is then kept. An alias may
// come to stand for something else. It fails with ErrName, ErrNotFound, and with
// ErrTaken where alias is the name of an adapter.
func (r *Registry) Alias(alias, ref string) error {
	if err := CheckName(alias); err != nil {
		return err
	}
	return r.edit(ref, func(t *table, want reference) error {
		if t.names[alias] != nil {
			return fmt.Errorf("lora: alias %q: %w by an adapter", alias, ErrTaken)
		}
		found, _, err := t.find(want)
		if err == nil {
			t.aliases[alias] = found
		}
		return err
	})
}

// Pin keeps the current version of a name, whichever that is, or one version, on
// the host and, once it is there, on the device. It fails with ErrName and
// ErrNotFound.
func (r *Registry) Pin(ref string) error {
	return r.edit(ref, func(t *table, want reference) error {
		found, _, err := t.find(want)
		if err == nil {
			t.pins[found] = true
		}
		return err
	})
}

// Unpin takes a pin away, if there is one. It fails with ErrName and ErrNotFound.
func (r *Registry) Unpin(ref string) error {
	return r.edit(ref, func(t *table, want reference) error {
		found, _, err := t.find(want)
		delete(t.pins, found)
		return err
	})
}

// Close forgets all names, and waits for loads that are under way. What is leased
// stays until it is released. All other calls fail with ErrClosed.
func (r *Registry) Close() {
	r.mu.Lock()
	r.publish(&table{closed: true})
	r.mu.Unlock()
	r.loads.Wait()
}

// edit changes the table.
func (r *Registry) edit(ref string, change func(t *table, want reference) error) error {
	want, err := parseReference(ref)
	if err != nil {
		return err
	}
	r.mu.Lock()
	err = r.change(func(t *table) error { return change(t, want) })
	r.mu.Unlock()
	return r.hint(want.name, err)
}

// change publishes a changed copy of the table. r.mu is held.
func (r *Registry) change(change func(*table) error) error {
	old := r.table.Load()
	if old.closed {
		return ErrClosed
	}
	t := old.clone()
	if err := change(t); err != nil {
		return err
	}
	t.prune(r.options.Former)
	r.publish(t)
	return nil
}

// publish has readers see t, and frees what is in no table any more and not leased.
func (r *Registry) publish(t *table) {
	named := t.settle()
	r.table.Store(t)
	for _, v := range r.live {
		v.retired.Store(!named[v])
		r.collect(v)
	}
}

// tick is the time, and later than at any call before.
func (r *Registry) tick() int64 {
	for {
		last := r.clock.Load()
		now := max(time.Now().UnixNano(), last+1)
		if r.clock.CompareAndSwap(last, now) {
			return now
		}
	}
}

// Info is what a registry says of a name.
type Info struct {
	Name     string
	Aliases  []string      // of all its versions
	Versions []VersionInfo // the current one first
}

// VersionInfo is what a registry says of a version.
type VersionInfo struct {
	Digest   Digest
	Dir      string    // where it was loaded from last
	Summary  string    // of its configuration
	Warnings []string  // of the configuration, and names in it that match nothing
	Rank     int       // the largest of its targets
	Bytes    int64     // on the host, when it is there
	Where    Where     // it lies
	Pinned   bool      // by this name or another
	Leases   int       // that are not released
	LastUse  time.Time // when it was last loaded, acquired or released
}

// List describes all names, sorted.
func (r *Registry) List() []Info {
	t := r.table.Load()
	aliases := map[string][]string{}
	for alias, of := range t.aliases {
		aliases[of.name] = append(aliases[of.name], alias)
	}
	all := make([]Info, 0, len(t.names))
	for name, versions := range t.names {
		slices.Sort(aliases[name])
		info := Info{Name: name, Aliases: aliases[name]}
		for _, v := range versions {
			info.Versions = append(info.Versions, v.info(t.pinned[v]))
		}
		all = append(all, info)
	}
	slices.SortFunc(all, func(x, y Info) int { return cmp.Compare(x.Name, y.Name) })
	return all
}

// hint adds the nearest names to an error about one that is unknown.
func (r *Registry) hint(name string, err error) error {
	if !errors.Is(err, errUnknown) {
		return err
	}
	return fmt.Errorf("lora: %q: %w%s", name, ErrNotFound, r.nearest(name))
}
