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

	"github.com/lorafuse/lorafuse/internal/nn"
	"github.com/lorafuse/lorafuse/tokenizer"
)

// Registry holds adapters of one model by name. Operators can load, replace and unload
// them while requests use them.
//
// A name refers to a [Version], which is identified by its bytes. A load reads the files
// into memory once and checks them completely (see [Adapter.Check]); later changes to the
// files have no effect. Adapters with the same bytes are one version, whatever their names.
//
// A version is on disk, on the host, or on the host and one or more devices. When memory
// is needed, the least recently used versions are evicted, except those that are leased
// or pinned. A version on disk is reloaded when it is requested, and must not have
// changed.
//
// A reference is a name or an alias, optionally followed by the first hexadecimal digits
// of a version's digest, as in "support@3f2a". Names consist of letters, digits and
// . _ / -; no part between slashes is empty or begins with a dot, and ".." is not allowed.
//
// A lease of a name that is being loaded waits for the load. Operations that change what
// names refer to apply only to loaded adapters, on disk or in memory.
//
// A Registry is safe for concurrent use. Acquire of a version on the host, Release and
// List take no lock.
type Registry struct {
	weights   nn.Weights
	modelType string
	modules   []nn.Module
	options   RegistryOptions

	table atomic.Pointer[table] // visible to readers; replaced as a whole
	clock atomic.Int64          // of uses

	mu       sync.Mutex // held for all changes, and guards the fields below
	live     map[Digest]*Version
	pending  map[string]*flight // loads of names, the latest of each
	bytes    int64              // on the host
	resident []int              // on each device
	loads    sync.WaitGroup

	foldersMu sync.Mutex
	folders   map[string]folderState // folders of Root by name
}

// RegistryOptions holds the sources and limits of a registry. The zero value sets none.
type RegistryOptions struct {
	// Root is a folder of adapter folders, which are loaded on first use by the names
	// of their folders. Links that lead out of Root are not followed. Empty means no
	// root.
	Root string
	// Find returns the folder of an adapter for an unknown name; the adapter is then
	// loaded on first use, as by LoadStep. Find takes precedence over Root. It may be
	// called at any time, by several goroutines, and must not call the registry. Nil
	// finds nothing.
	Find func(name string) (dir string, ok bool)
	// Open opens an adapter in another form than a folder of PEFT, for Load and LoadStep. names
	// are the tensors of a folder that was read as one of PEFT, which may still be in another
	// form, and nil if reading failed. ok is false for a folder of PEFT. Nil opens none.
	Open func(path string, names []string) (a *Adapter, ok bool, err error)
	// Tokenizer is the model's tokenizer, which tokenizes all requests. Loading an
	// adapter whose folder has a tokenizer with other tokens fails with
	// tokenizer.ErrTokens. Nil disables the check.
	Tokenizer *tokenizer.Tokenizer
	// HostBytes limits the host memory for adapters. Zero means no limit. The file of
	// an adapter needs additional memory while it is loaded.
	HostBytes int64
	// KeepVersions is the number of old versions that a name keeps in addition to the current
	// one. Versions that are pinned or have an alias are always kept.
	KeepVersions int
	// Prepare, if not nil, is called with the state of an adapter that has been read,
	// before any request can use it. The load waits for it.
	Prepare func(s *State)
	// Slots are the devices, up to 64, and MaxResident is the maximum number of versions
	// on each. Zero means no limit.
	Slots       []Slots
	MaxResident int
}

// Slots manages the adapters on a device. A registry calls one method at a time while
// it holds its lock: a method must not call the registry, nor wait for anything that
// does.
type Slots interface {
	// Put uploads a version to the device. Its state stays on the host while the
	// version is on the device. If Put fails, the version is not on the device.
	Put(ctx context.Context, v *Version) error
	// Drop removes the version from the device. No lease uses it there.
	Drop(v *Version)
}

// NewRegistry returns an empty registry of adapters for a model; [LoadState] describes
// the first three arguments. w must be safe for concurrent use. It fails if Root is not
// a folder, and if there are too many devices.
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
	if len(o.Slots) > maxDevices {
		return nil, fmt.Errorf("lora: %w: a registry of %d devices, expected at most %d", ErrUnsupported, len(o.Slots), maxDevices)
	}
	o.Slots = slices.Clone(o.Slots)
	r := &Registry{
		weights: w, modelType: modelType, modules: modules, options: o,
		live: map[Digest]*Version{}, pending: map[string]*flight{}, resident: make([]int, len(o.Slots)),
	}
	r.table.Store(&table{})
	return r, nil
}

// Load loads the adapter in dir and assigns it to name. The previous version stays
// valid for its leases, and for references by version as limited by KeepVersions. If a
// version with the same bytes is on the host, no second copy is made. Load reads only
// safetensors files.
//
// It fails with ErrName, with ErrTaken if name is an alias, with ErrChanged if the
// files change during the load, with ErrFull if the host has no room, with the error of
// ctx, which ends the wait but not the reading of files, and as [LoadState] does; then
// nothing has changed.
func (r *Registry) Load(ctx context.Context, name, dir string) (*Version, error) {
	return r.loadFrom(ctx, name, source{dir: dir})
}

// LoadStep loads a step of an adapter in training. Unlike Load, it accepts an adapter
// without effect, since B is all zero before training.
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
	from.options = &r.options
	return r.replace(name, func() (*Version, error) { return r.load(ctx, name, from, from.read, true) })
}

// Add adds an open adapter, from any kind of file, and fails as Load does. It copies
// the adapter's memory. A version that was evicted to disk is reloaded from a.Dir, as
// by Load.
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

// Publish assigns to name a step of an adapter in training, without a file. The
// registry keeps s until no name refers to it; s must not be modified after the call.
// The adapter may be without effect. identity replaces the digest of the bytes, and
// must be unique for every state. Errors: ErrName, ErrTaken, ErrFull, the error of ctx.
func (r *Registry) Publish(ctx context.Context, name, identity string, s *State) (*Version, error) {
	if err := CheckName(name); err != nil {
		return nil, err
	}
	digest := Digest(sha256.Sum256([]byte("lorafuse published state 1\x00" + identity)))
	return r.replace(name, func() (*Version, error) {
		return r.enter(ctx, name, source{published: s}, digest, s.built, true)
	})
}

// LoadBelow loads an adapter like Load, from a folder of Root given by its path in Root
// or its full path. Links that lead out of Root are not followed. It fails with
// ErrNotFound if Root has no such folder or is not set.
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

// replace assigns the result of load to name. Requests for name wait until it is done.
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

// Unload removes a name with all its versions, or one version, whose place the newest
// remaining one takes. Pins and aliases of removed versions are removed too. For an
// alias, it removes only the alias. Memory is freed when the last lease is released. It
// fails with ErrName and ErrNotFound.
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

// Alias makes alias refer to ref: to the current version of a name at each use, or to
// one fixed version, which is then kept. An existing alias is reassigned. It fails with
// ErrName, ErrNotFound, and with ErrTaken if alias is the name of an adapter.
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

// Pin keeps a version on the host and, once uploaded, on its devices: one version, or
// whichever is the current version of a name. It fails with ErrName and ErrNotFound.
func (r *Registry) Pin(ref string) error {
	return r.edit(ref, func(t *table, want reference) error {
		found, _, err := t.find(want)
		if err == nil {
			t.pins[found] = true
		}
		return err
	})
}

// Unpin removes a pin, if any. It fails with ErrName and ErrNotFound.
func (r *Registry) Unpin(ref string) error {
	return r.edit(ref, func(t *table, want reference) error {
		found, _, err := t.find(want)
		delete(t.pins, found)
		return err
	})
}

// CloseDevice removes all versions from a device, which no lease may use any more. Later
// uploads to it fail with ErrClosed.
func (r *Registry) CloseDevice(device int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, v := range r.live {
		r.drop(v, device)
	}
	r.options.Slots[device] = closedSlots{}
}

// Close removes all names and waits for pending loads. Leased versions stay valid until
// they are released. All other calls fail with ErrClosed.
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
	t.prune(r.options.KeepVersions)
	r.publish(t)
	return nil
}

// publish makes t visible to readers, and frees versions that are in no table and not
// leased.
func (r *Registry) publish(t *table) {
	named := t.settle()
	r.table.Store(t)
	for _, v := range r.live {
		v.retired.Store(!named[v])
		r.collect(v)
	}
}

// tick returns the current time, increased if necessary so that it is later than at any
// earlier call.
func (r *Registry) tick() int64 {
	for {
		last := r.clock.Load()
		now := max(time.Now().UnixNano(), last+1)
		if r.clock.CompareAndSwap(last, now) {
			return now
		}
	}
}

// Info describes a name in a registry.
type Info struct {
	Name     string
	Aliases  []string      // of all its versions
	Versions []VersionInfo // the current one first
}

// VersionInfo describes a version in a registry.
type VersionInfo struct {
	Digest   Digest
	Dir      string    // folder of the last load
	Summary  string    // of its configuration
	Warnings []string  // of the configuration, and its names without a match
	Rank     int       // the largest of its targets
	Bytes    int64     // size on the host when loaded
	Location Location  // where the version is now
	Devices  []int     // on which it is
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
