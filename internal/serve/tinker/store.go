package tinker

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/lorafuse/lorafuse/internal/fsatomic"
	"github.com/lorafuse/lorafuse/internal/serve/keys"
	"github.com/lorafuse/lorafuse/internal/suggest"
	"github.com/lorafuse/lorafuse/internal/train/session"
)

// store keeps the persistent data: a folder for each training run, with its checkpoints by kind and
// name. Checkpoints are written atomically: each is complete or absent.
//
//	runs/SESSION.train.N/run.json
//	runs/SESSION.train.N/weights/NAME/checkpoint.json, adapter/…
//	live/SESSION.train.N/…    unsaved weights used for sampling
type store struct {
	path   string
	root   *os.Root // prevents reads outside the folder
	lock   *fsatomic.FileLock
	logger *slog.Logger

	writing sync.Mutex // held during changes of files
	mu      sync.Mutex // guards the fields below
	runs    map[string]*run
	removed map[string]removal // by URI, so that a repeated removal succeeds
}

// removal is the time at which a checkpoint of an owner was removed.
type removal struct {
	owner string
	at    time.Time
}

// run is a training run. Only the store changes exported fields.
type run struct {
	ID        string            `json:"training_run_id"`
	Owner     string            `json:"owner,omitempty"` // name of the key
	BaseModel string            `json:"base_model"`
	Adapter   session.Options   `json:"adapter"`
	Metadata  map[string]string `json:"user_metadata"`
	Created   time.Time         `json:"created"`
	Last      time.Time         `json:"last_request_time"`
	Ended     bool              `json:"ended"` // unsaved state is lost

	checkpoints map[string]*checkpoint // by kind and name
}

// checkpoint is a saved state of a run.
type checkpoint struct {
	Run       string            `json:"training_run_id"`
	Kind      string            `json:"kind"` // name of the folder
	Name      string            `json:"name"`
	Time      time.Time         `json:"time"`
	Expires   *time.Time        `json:"expires_at"`
	Bytes     int64             `json:"size_bytes"`
	Metadata  map[string]string `json:"user_metadata"`
	BaseModel string            `json:"base_model"`
	Adapter   session.Options   `json:"adapter"`
	Optimizer bool              `json:"optimizer"`

	owner string // of the run
}

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
func (p *checkpoint) URI() string { return scheme + p.Run + "/" + p.id() }

// id returns the name within the run.
func (p *checkpoint) id() string { return p.Kind + "/" + p.Name }

// Names of files and folders.
const (
	runFile        = "run.json"
	checkpointFile = "checkpoint.json"
	adapterFolder  = "adapter"
)

var (
	runName  = regexp.MustCompile(`^[0-9a-f]{16}:train:[0-9]{1,18}$`)
	savedAs  = regexp.MustCompile(`^[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*$`)
	folderOf = strings.NewReplacer(":", ".")
)

const longestName = 128

// isName reports whether s is a valid name of a checkpoint.
func isName(s string) bool { return len(s) <= longestName && savedAs.MatchString(s) }

// openStore loads the store at dir, which it creates if it is missing.
func openStore(dir string, logger *slog.Logger) (_ *store, err error) {
	s := &store{logger: logger, runs: map[string]*run{}, removed: map[string]removal{}}
	if s.path, err = filepath.Abs(dir); err != nil {
		return nil, fmt.Errorf("tinker: %w", err)
	}
	if err := os.MkdirAll(filepath.Join(s.path, "runs"), 0o777); err != nil {
		return nil, fmt.Errorf("tinker: %w", err)
	}
	s.lock, err = fsatomic.TryLock(filepath.Join(s.path, ".lorafuse.lock"))
	if errors.Is(err, fsatomic.ErrLockUnsupported) {
		logger.Warn("the file system has no locks: let no other server have this folder", "dir", s.path)
	} else if err != nil {
		return nil, fmt.Errorf("tinker: %w", err)
	}
	defer func() {
		if err != nil {
			s.close()
		}
	}()
	if s.root, err = os.OpenRoot(s.path); err != nil {
		return nil, fmt.Errorf("tinker: %w", err)
	}
	if err := os.RemoveAll(filepath.Join(s.path, "live")); err != nil {
		return nil, fmt.Errorf("tinker: %w", err)
	}
	if err := fsatomic.Sweep(filepath.Join(s.path, "runs")); err != nil {
		return nil, fmt.Errorf("tinker: %w", err)
	}
	folders, err := fs.ReadDir(s.root.FS(), "runs")
	if err != nil {
		return nil, fmt.Errorf("tinker: %w", err)
	}
	for _, f := range folders {
		if err := s.read(f.Name()); err != nil {
			logger.Error("a training run cannot be read, and is left alone", "folder", filepath.Join(s.path, "runs", f.Name()), "error", err)
		}
	}
	return s, nil
}

func (s *store) close() {
	if s.root != nil {
		s.root.Close()
	}
	if s.lock != nil {
		s.lock.Unlock()
	}
}

// read loads the run in a folder.
func (s *store) read(folder string) error {
	r := &run{checkpoints: map[string]*checkpoint{}}
	if err := s.readJSON(filepath.Join("runs", folder, runFile), r); err != nil {
		return err
	}
	if !runName.MatchString(r.ID) || folderOf.Replace(r.ID) != folder {
		return fmt.Errorf("%s: found the run %.100q", runFile, r.ID)
	}
	for _, k := range kinds {
		within := filepath.Join("runs", folder, k.folder)
		if err := fsatomic.Sweep(filepath.Join(s.path, within)); err != nil {
			return err
		}
		names, err := fs.ReadDir(s.root.FS(), within)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		for _, n := range names {
			p := &checkpoint{}
			err := s.readJSON(filepath.Join(within, n.Name(), checkpointFile), p)
			if err == nil && (p.Run != r.ID || p.Kind != k.folder || p.Name != n.Name() || !isName(p.Name)) {
				err = fmt.Errorf("%s: found %.200q", checkpointFile, p.URI())
			}
			if err != nil {
				s.logger.Error("a checkpoint cannot be read, and is left alone", "folder", filepath.Join(s.path, within, n.Name()), "error", err)
				continue
			}
			p.owner = r.Owner
			r.checkpoints[p.id()] = p
		}
	}
	s.runs[r.ID] = r
	if !r.Ended {
		s.logger.Warn("a model was being trained when the server before this one ended; what was not saved of it is dropped", "model", r.ID, "saved", len(r.checkpoints))
		return s.conclude(r)
	}
	return nil
}

func (s *store) readJSON(path string, v any) error {
	raw, err := s.root.ReadFile(path)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(raw, v); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

func (s *store) writeJSON(path string, v any) error {
	raw, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	return fsatomic.WriteFile(path, append(raw, '\n'))
}

// folder returns the folder of a run.
func (s *store) folder(run string) string {
	return filepath.Join(s.path, "runs", folderOf.Replace(run))
}

// dir returns the adapter folder of a checkpoint.
func (s *store) dir(p *checkpoint) string {
	return filepath.Join(s.folder(p.Run), p.Kind, p.Name, adapterFolder)
}

// add stores a new run.
func (s *store) add(r *run) error {
	r.checkpoints, r.Last = map[string]*checkpoint{}, r.Created
	s.writing.Lock()
	defer s.writing.Unlock()
	err := os.MkdirAll(s.folder(r.ID), 0o777)
	if err == nil {
		err = s.writeJSON(filepath.Join(s.folder(r.ID), runFile), r)
	}
	if err != nil {
		return fmt.Errorf("tinker: model %s: %w", r.ID, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.runs[r.ID] = r
	return nil
}

// conclude records that a run has ended. A run without checkpoints is removed.
func (s *store) conclude(r *run) error {
	s.writing.Lock()
	defer s.writing.Unlock()
	s.mu.Lock()
	r.Ended = true
	saved := len(r.checkpoints)
	if saved == 0 {
		delete(s.runs, r.ID)
	}
	s.mu.Unlock()
	if saved == 0 {
		return fsatomic.RemoveDir(s.folder(r.ID))
	}
	return s.writeJSON(filepath.Join(s.folder(r.ID), runFile), r)
}

// save creates a checkpoint. write must write its adapter to dir, which does not exist yet. Without
// overwrite, a checkpoint of that name must not exist.
func (s *store) save(p *checkpoint, overwrite bool, write func(dir string) error) error {
	if !isName(p.Name) {
		return fmt.Errorf("%w: path: found %.200q, expected at most %d letters, digits, _ and -, and single dots between them", ErrRequest, p.Name, longestName)
	}
	s.writing.Lock()
	defer s.writing.Unlock()
	if s.lookup(p.Run, p.id()) != nil && !overwrite {
		return fmt.Errorf("%w: there is %s already; overwrite replaces it", ErrRequest, p.URI())
	}
	p.Time = time.Now().UTC()
	parent := filepath.Join(s.folder(p.Run), p.Kind)
	err := os.MkdirAll(parent, 0o777)
	if err == nil {
		err = fsatomic.ReplaceDir(filepath.Join(parent, p.Name), func(tmp string) error {
			adapter := filepath.Join(tmp, adapterFolder)
			if err := write(adapter); err != nil {
				return err
			}
			var err error
			if p.Bytes, err = sizeOf(adapter); err != nil {
				return err
			}
			return s.writeJSON(filepath.Join(tmp, checkpointFile), p)
		})
	}
	if err != nil {
		return fmt.Errorf("tinker: %s: %w", p.URI(), err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.runs[p.Run]
	p.owner, r.Last, r.checkpoints[p.id()] = r.Owner, p.Time, p
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
func (s *store) lookup(run, id string) *checkpoint {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.runs[run]
	if r == nil {
		return nil
	}
	p := r.checkpoints[id]
	if p == nil || p.expired(time.Now()) {
		return nil
	}
	return p
}

func (p *checkpoint) expired(now time.Time) bool { return p.Expires != nil && now.After(*p.Expires) }

// find returns the checkpoint of a URI if the client sees it. It fails with ErrRequest and
// ErrNotFound.
func (s *store) find(who keys.Client, uri string) (*checkpoint, error) {
	rest, ok := strings.CutPrefix(uri, scheme)
	parts := strings.Split(rest, "/")
	if !ok || len(parts) != 3 {
		return nil, fmt.Errorf("%w: found %.200q, expected tinker://RUN/weights/NAME", ErrRequest, uri)
	}
	return s.at(who, parts[0], parts[1], parts[2])
}

// at returns the checkpoint of a run, kind and name if the client sees it and its files exist in
// this store.
func (s *store) at(who keys.Client, run, folder, name string) (*checkpoint, error) {
	if !slices.ContainsFunc(kinds, func(k kind) bool { return k.folder == folder }) {
		return nil, fmt.Errorf("%w: %s", ErrRequest, suggest.Expected(folder, []string{trainingKind.folder, samplerKind.folder, externalKind.folder}))
	}
	p := s.lookup(run, folder+"/"+name)
	if p == nil || !who.Sees(p.owner) {
		return nil, fmt.Errorf("%w: %.200q%s", ErrNotFound, scheme+run+"/"+folder+"/"+name, s.nearest(who, run, folder+"/"+name))
	}
	inside := filepath.Join("runs", folderOf.Replace(p.Run), p.Kind, p.Name, adapterFolder)
	if info, err := s.root.Stat(inside); err != nil || !info.IsDir() {
		return nil, fmt.Errorf("%w: the files of %s", ErrNotFound, p.URI())
	}
	return p, nil
}

// nearest suggests a checkpoint with a similar name for an error message.
func (s *store) nearest(who keys.Client, run, id string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.runs[run]
	if r == nil || !who.Sees(r.Owner) {
		return ""
	}
	var ids []string
	for id := range r.checkpoints {
		ids = append(ids, id)
	}
	return suggest.DidYouMean(id, ids)
}

// remove deletes a checkpoint.
func (s *store) remove(p *checkpoint) error {
	s.writing.Lock()
	defer s.writing.Unlock()
	s.mu.Lock()
	r := s.runs[p.Run]
	if r == nil || r.checkpoints[p.id()] != p { // replaced or removed
		s.mu.Unlock()
		return nil
	}
	delete(r.checkpoints, p.id())
	s.removed[p.URI()] = removal{p.owner, time.Now()}
	last := r.Ended && len(r.checkpoints) == 0
	if last {
		delete(s.runs, p.Run)
	}
	s.mu.Unlock()
	if last {
		return fsatomic.RemoveDir(s.folder(p.Run))
	}
	return fsatomic.RemoveDir(filepath.Join(s.folder(p.Run), p.Kind, p.Name))
}

// wasRemoved reports whether a checkpoint of that URI, visible to the client, was removed recently.
func (s *store) wasRemoved(who keys.Client, uri string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	x, was := s.removed[uri]
	return was && who.Sees(x.owner)
}

// setExpiry sets the expiry of a checkpoint.
func (s *store) setExpiry(p *checkpoint, at *time.Time) error {
	s.writing.Lock()
	defer s.writing.Unlock()
	changed := *p
	changed.Expires = at
	if err := s.writeJSON(filepath.Join(filepath.Dir(s.dir(p)), checkpointFile), &changed); err != nil {
		return fmt.Errorf("tinker: %s: %w", p.URI(), err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if r := s.runs[p.Run]; r != nil && r.checkpoints[p.id()] == p {
		r.checkpoints[p.id()] = &changed
	}
	return nil
}

// expire deletes expired checkpoints.
func (s *store) expire(now time.Time) {
	s.mu.Lock()
	for uri, x := range s.removed {
		if now.Sub(x.at) > remember {
			delete(s.removed, uri)
		}
	}
	var all []*checkpoint
	for _, r := range s.runs {
		for _, p := range r.checkpoints {
			if p.expired(now) {
				all = append(all, p)
			}
		}
	}
	s.mu.Unlock()
	for _, p := range all {
		if err := s.remove(p); err != nil {
			s.logger.Error("a checkpoint has expired and cannot be removed", "path", p.URI(), "error", err)
			continue
		}
		s.logger.Info("a checkpoint has expired and is removed", "path", p.URI())
	}
}

// liveDir returns a folder for unsaved weights used for sampling. The folder does not exist yet.
func (s *store) liveDir(model, name string) (string, error) {
	parent := filepath.Join(s.path, "live", folderOf.Replace(model))
	return filepath.Join(parent, name), os.MkdirAll(parent, 0o777)
}

// dropLive removes the live weights of a model.
func (s *store) dropLive(model string) {
	if err := os.RemoveAll(filepath.Join(s.path, "live", folderOf.Replace(model))); err != nil {
		s.logger.Error("weights that nobody samples from cannot be removed", "model", model, "error", err)
	}
}

// list returns copies of the runs that a client sees and of their checkpoints that have not
// expired, latest first.
func (s *store) list(who keys.Client) (runs []run, checkpoints []*checkpoint) {
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.runs {
		if !who.Sees(r.Owner) {
			continue
		}
		runs = append(runs, *r)
		for _, p := range r.checkpoints {
			if !p.expired(now) {
				checkpoints = append(checkpoints, p)
			}
		}
	}
	slices.SortFunc(runs, func(a, b run) int { return cmp.Or(b.Created.Compare(a.Created), strings.Compare(a.ID, b.ID)) })
	slices.SortFunc(checkpoints, func(a, b *checkpoint) int { return cmp.Or(b.Time.Compare(a.Time), strings.Compare(a.URI(), b.URI())) })
	return runs, checkpoints
}
