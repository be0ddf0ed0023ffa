package tinker

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/lorafuse/lorafuse/internal/fsatomic"
	"github.com/lorafuse/lorafuse/internal/serve/keys"
	"github.com/lorafuse/lorafuse/internal/serve/store"
	"github.com/lorafuse/lorafuse/internal/suggest"
	"github.com/lorafuse/lorafuse/internal/train/session"
)

// runStore keeps runs and their checkpoints. A checkpoint has a folder of its own, which its record
// names:
//
//	runs/SESSION.train.N/weights/NAME/adapter/…
//	live/SESSION.train.N/…    unsaved weights used for sampling
type runStore struct {
	store       *store.Store
	runs        *store.Table[run]
	checkpoints *store.Table[checkpoint]
	space       *store.Space
	root        *os.Root // prevents reads outside the folder
	logger      *slog.Logger

	writing sync.Mutex         // held during changes of checkpoints
	mu      sync.Mutex         // guards removed
	removed map[string]removal // by URI, so that a repeated removal succeeds
}

// removal is the time at which a checkpoint of an owner was removed.
type removal struct {
	owner string
	at    time.Time
}

// run is a training run.
type run struct {
	ID        string            `json:"training_run_id"`
	Owner     string            `json:"owner,omitempty"` // name of the key
	BaseModel string            `json:"base_model"`
	Adapter   session.Options   `json:"adapter"`
	Metadata  map[string]string `json:"user_metadata"`
	Created   time.Time         `json:"created"`
	Last      time.Time         `json:"last_request_time"`
	Ended     bool              `json:"ended"` // unsaved state is lost
}

// Key implements store.Record.
func (r run) Key() string { return r.ID }

// OwnedBy implements store.Record.
func (r run) OwnedBy() string { return r.Owner }

// checkpoint is a saved state of a run.
type checkpoint struct {
	Run       string            `json:"training_run_id"`
	Owner     string            `json:"owner,omitempty"` // of the run
	Kind      string            `json:"kind"`            // name of the folder
	Name      string            `json:"name"`
	Dir       string            `json:"dir"` // in the store
	Time      time.Time         `json:"time"`
	Expires   *time.Time        `json:"expires_at"`
	Bytes     int64             `json:"size_bytes"`
	Metadata  map[string]string `json:"user_metadata"`
	BaseModel string            `json:"base_model"`
	Adapter   session.Options   `json:"adapter"`
	Optimizer bool              `json:"optimizer"`
}

// Key implements store.Record.
func (p checkpoint) Key() string { return p.Run + "/" + p.id() }

// OwnedBy implements store.Record.
func (p checkpoint) OwnedBy() string { return p.Owner }

// kind is a kind of checkpoint.
type kind struct {
	folder string // also used in URIs
	name   string // in listings
	call   string // the call that creates one
}

var (
	trainingKind = kind{"weights", "training", "save_weights"}
	samplerKind  = kind{"sampler_weights", "sampler", "save_weights_for_sampler"}
	externalKind = kind{"external_weights", "external", "save_weights_external"}
	kinds        = []kind{trainingKind, samplerKind, externalKind}
)

// scheme is the prefix of all URIs.
const scheme = "tinker://"

// URI returns the URI of a checkpoint.
func (p checkpoint) URI() string { return scheme + p.Run + "/" + p.id() }

// id returns the name within the run.
func (p checkpoint) id() string { return p.Kind + "/" + p.Name }

// Folders of a store, and of a checkpoint.
const (
	runsDir       = "runs"
	liveDir       = "live"
	adapterFolder = "adapter"
)

var (
	runName  = regexp.MustCompile(`^[0-9a-f]{16}:train:[0-9]{1,18}$`)
	savedAs  = regexp.MustCompile(`^[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*$`)
	folderOf = strings.NewReplacer(":", ".")
)

const longestName = 128

// isName reports whether s is a valid name of a checkpoint.
func isName(s string) bool { return len(s) <= longestName && savedAs.MatchString(s) }

// openStore opens the store in dir, which it creates if it is missing. Runs that were in progress
// have ended.
func openStore(dir string, keepFree int64, logger *slog.Logger) (_ *runStore, err error) {
	s := &runStore{runs: store.NewTable[run]("runs"), checkpoints: store.NewTable[checkpoint]("checkpoints"), logger: logger, removed: map[string]removal{}}
	defer func() {
		if err != nil {
			s.close()
			err = fmt.Errorf("tinker: %w", err)
		}
	}()
	if dir, err = filepath.Abs(dir); err != nil {
		return nil, err
	}
	if err = os.MkdirAll(filepath.Join(dir, runsDir), 0o777); err != nil {
		return nil, err
	}
	if s.root, err = os.OpenRoot(dir); err != nil {
		return nil, err
	}
	if s.store, err = store.Open(dir, s.adopt, s.runs, s.checkpoints); err != nil {
		return nil, err
	}
	s.space = s.store.NewSpace(0, keepFree)
	if err = errors.Join(os.RemoveAll(s.store.Path(liveDir)), s.sweep()); err != nil {
		return nil, err
	}
	for _, r := range s.runs.All() {
		if !r.Ended {
			logger.Warn("a model was being trained when the server before this one ended; what was not saved of it is dropped", "model", r.ID, "saved", len(s.checkpointsOf(r.ID)))
			if err = s.conclude(r.ID); err != nil {
				return nil, err
			}
		}
	}
	return s, nil
}

func (s *runStore) close() {
	if s.root != nil {
		s.root.Close()
	}
	if s.store != nil {
		s.store.Close()
	}
}

// sweep removes folders without a record. It keeps folders of earlier versions that [runStore.adopt]
// could not read.
func (s *runStore) sweep() error {
	used := map[string]bool{}
	for _, p := range s.checkpoints.All() {
		used[p.Dir] = true
	}
	known := func(file ...string) bool {
		_, err := s.root.Lstat(path.Join(file...))
		return err == nil
	}
	folders := map[string]bool{}
	for _, r := range s.runs.All() {
		folder := folderOf.Replace(r.ID)
		folders[folder] = true
		for _, k := range kinds {
			within := path.Join(runsDir, folder, k.folder)
			err := s.store.Sweep(within, func(name string) bool { return used[path.Join(within, name)] || known(within, name, oldCheckpointFile) })
			if err != nil {
				return err
			}
		}
	}
	return s.store.Sweep(runsDir, func(name string) bool {
		return folders[name] || !runName.MatchString(strings.ReplaceAll(name, ".", ":")) || known(runsDir, name, oldRunFile)
	})
}

// folder returns the folder of a run.
func (s *runStore) folder(run string) string { return s.store.Path(runsDir, folderOf.Replace(run)) }

// dir returns the adapter folder of a checkpoint.
func (s *runStore) dir(p *checkpoint) string { return s.store.Path(p.Dir, adapterFolder) }

// add stores a new run.
func (s *runStore) add(r run) error {
	r.Last = r.Created
	if err := s.store.Update(func(t *store.Tx) error { return s.runs.Put(t, r) }); err != nil {
		return fmt.Errorf("tinker: model %s: %w", r.ID, err)
	}
	return nil
}

// checkpointsOf returns the checkpoints of a run.
func (s *runStore) checkpointsOf(run string) []checkpoint {
	return slices.DeleteFunc(s.checkpoints.All(), func(p checkpoint) bool { return p.Run != run })
}

// conclude records that a run has ended. A run without checkpoints is removed.
func (s *runStore) conclude(id string) error {
	s.writing.Lock()
	defer s.writing.Unlock()
	r, _ := s.runs.Get(id)
	r.Ended = true
	if len(s.checkpointsOf(id)) > 0 {
		return s.store.Update(func(t *store.Tx) error { return s.runs.Put(t, r) })
	}
	err := s.store.Update(func(t *store.Tx) error { return s.runs.Remove(t, id) })
	if err == nil {
		err = fsatomic.RemoveDir(s.folder(id))
	}
	return err
}

// save creates a checkpoint. write must write its adapter to dir, which does not exist yet. Without
// overwrite, a checkpoint of that name must not exist.
func (s *runStore) save(p *checkpoint, overwrite bool, write func(dir string) error) error {
	if !isName(p.Name) {
		return fmt.Errorf("%w: path: found %.200q, expected at most %d letters, digits, _ and -, and single dots between them", ErrRequest, p.Name, longestName)
	}
	s.writing.Lock()
	defer s.writing.Unlock()
	if s.lookup(p.Run, p.id()) != nil && !overwrite {
		return fmt.Errorf("%w: there is %s already; overwrite replaces it", ErrRequest, p.URI())
	}
	old, replaces := s.checkpoints.Get(p.Key())
	r, _ := s.runs.Get(p.Run)
	p.Time, p.Owner = time.Now().UTC(), r.Owner
	r.Last = p.Time
	if p.Dir = path.Join(runsDir, folderOf.Replace(p.Run), p.Kind, p.Name); replaces {
		p.Dir += "@" + strconv.FormatInt(p.Time.UnixNano(), 36) // no name has an @
	}
	dir := s.store.Path(p.Dir)
	err := s.space.Reserve(0)
	if err == nil {
		err = os.MkdirAll(filepath.Dir(dir), 0o777)
	}
	if err == nil {
		err = fsatomic.ReplaceDir(dir, func(tmp string) (err error) {
			adapter := filepath.Join(tmp, adapterFolder)
			if err = write(adapter); err == nil {
				p.Bytes, err = sizeOf(adapter)
			}
			return err
		})
	}
	if err == nil {
		err = s.store.Update(func(t *store.Tx) error { return errors.Join(s.runs.Put(t, r), s.checkpoints.Put(t, *p)) })
		if err != nil {
			err = errors.Join(err, fsatomic.RemoveDir(dir))
		}
	}
	if err != nil {
		return fmt.Errorf("tinker: %s: %w", p.URI(), store.Full(err))
	}
	if replaces {
		if err := fsatomic.RemoveDir(s.store.Path(old.Dir)); err != nil {
			s.logger.Error("a checkpoint that was replaced cannot be removed", "path", p.URI(), "error", err)
		}
	}
	return nil
}

// sizeOf returns the total size of the files in a folder.
func sizeOf(dir string) (n int64, err error) {
	err = filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			var info fs.FileInfo
			if info, err = d.Info(); err == nil {
				n += info.Size()
			}
		}
		return err
	})
	return n, err
}

// lookup returns a checkpoint, or nil if it does not exist or has expired.
func (s *runStore) lookup(run, id string) *checkpoint {
	p, ok := s.checkpoints.Get(run + "/" + id)
	if !ok || p.expired(time.Now()) {
		return nil
	}
	return &p
}

func (p checkpoint) expired(now time.Time) bool { return p.Expires != nil && now.After(*p.Expires) }

// find returns the checkpoint of a URI if the client sees it. It fails with ErrRequest and
// ErrNotFound.
func (s *runStore) find(who keys.Client, uri string) (*checkpoint, error) {
	rest, ok := strings.CutPrefix(uri, scheme)
	parts := strings.Split(rest, "/")
	if !ok || len(parts) != 3 {
		return nil, fmt.Errorf("%w: found %.200q, expected tinker://RUN/weights/NAME", ErrRequest, uri)
	}
	return s.at(who, parts[0], parts[1], parts[2])
}

// at returns the checkpoint of a run, kind and name if the client sees it and its files exist in
// this store.
func (s *runStore) at(who keys.Client, run, folder, name string) (*checkpoint, error) {
	if !slices.ContainsFunc(kinds, func(k kind) bool { return k.folder == folder }) {
		return nil, fmt.Errorf("%w: %s", ErrRequest, suggest.Expected(folder, []string{trainingKind.folder, samplerKind.folder, externalKind.folder}))
	}
	p := s.lookup(run, folder+"/"+name)
	if p == nil || !who.Sees(p.Owner) {
		return nil, fmt.Errorf("%w: %.200q%s", ErrNotFound, scheme+run+"/"+folder+"/"+name, s.nearest(who, run, folder+"/"+name))
	}
	if info, err := s.root.Stat(path.Join(p.Dir, adapterFolder)); err != nil || !info.IsDir() {
		return nil, fmt.Errorf("%w: the files of %s", ErrNotFound, p.URI())
	}
	return p, nil
}

// nearest suggests a checkpoint with a similar name for an error message.
func (s *runStore) nearest(who keys.Client, run, id string) string {
	r, ok := s.runs.Find(who, run)
	if !ok {
		return ""
	}
	var ids []string
	for _, p := range s.checkpointsOf(r.ID) {
		ids = append(ids, p.id())
	}
	return suggest.DidYouMean(id, ids)
}

// remove deletes a checkpoint.
func (s *runStore) remove(p *checkpoint) error {
	s.writing.Lock()
	defer s.writing.Unlock()
	if now, ok := s.checkpoints.Get(p.Key()); !ok || now.Dir != p.Dir { // replaced or removed
		return nil
	}
	r, _ := s.runs.Get(p.Run)
	last := r.Ended && len(s.checkpointsOf(p.Run)) == 1
	err := s.store.Update(func(t *store.Tx) error {
		err := s.checkpoints.Remove(t, p.Key())
		if last {
			err = errors.Join(err, s.runs.Remove(t, p.Run))
		}
		return err
	})
	if err != nil {
		return err
	}
	s.mu.Lock()
	s.removed[p.URI()] = removal{p.Owner, time.Now()}
	s.mu.Unlock()
	if last {
		return fsatomic.RemoveDir(s.folder(p.Run))
	}
	return fsatomic.RemoveDir(s.store.Path(p.Dir))
}

// wasRemoved reports whether a checkpoint of that URI, visible to the client, was removed recently.
func (s *runStore) wasRemoved(who keys.Client, uri string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	x, was := s.removed[uri]
	return was && who.Sees(x.owner)
}

// setExpiry sets the expiry of a checkpoint.
func (s *runStore) setExpiry(p *checkpoint, at *time.Time) error {
	s.writing.Lock()
	defer s.writing.Unlock()
	now, ok := s.checkpoints.Get(p.Key())
	if !ok || now.Dir != p.Dir { // replaced or removed
		return nil
	}
	now.Expires = at
	if err := s.store.Update(func(t *store.Tx) error { return s.checkpoints.Put(t, now) }); err != nil {
		return fmt.Errorf("tinker: %s: %w", p.URI(), err)
	}
	return nil
}

// expire deletes expired checkpoints.
func (s *runStore) expire(now time.Time) {
	s.mu.Lock()
	for uri, x := range s.removed {
		if now.Sub(x.at) > remember {
			delete(s.removed, uri)
		}
	}
	s.mu.Unlock()
	for _, p := range s.checkpoints.All() {
		if !p.expired(now) {
			continue
		}
		if err := s.remove(&p); err != nil {
			s.logger.Error("a checkpoint has expired and cannot be removed", "path", p.URI(), "error", err)
			continue
		}
		s.logger.Info("a checkpoint has expired and is removed", "path", p.URI())
	}
}

// newLiveDir returns a folder for unsaved weights used for sampling. The folder does not exist yet.
func (s *runStore) newLiveDir(model, name string) (string, error) {
	parent := s.store.Path(liveDir, folderOf.Replace(model))
	return filepath.Join(parent, name), os.MkdirAll(parent, 0o777)
}

// dropLive removes the live weights of a model.
func (s *runStore) dropLive(model string) {
	if err := os.RemoveAll(s.store.Path(liveDir, folderOf.Replace(model))); err != nil {
		s.logger.Error("weights that nobody samples from cannot be removed", "model", model, "error", err)
	}
}

// list returns the runs that a client sees and their checkpoints that have not expired, latest
// first.
func (s *runStore) list(who keys.Client) (runs []run, checkpoints []checkpoint) {
	now := time.Now()
	runs = s.runs.List(who, func(a, b run) int { return cmp.Or(b.Created.Compare(a.Created), strings.Compare(a.ID, b.ID)) })
	checkpoints = s.checkpoints.List(who, func(a, b checkpoint) int { return cmp.Or(b.Time.Compare(a.Time), strings.Compare(a.URI(), b.URI())) })
	return runs, slices.DeleteFunc(checkpoints, func(p checkpoint) bool { return p.expired(now) })
}
