package tinker

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/lorafuse/lorafuse/internal/serve/keys"
	"github.com/lorafuse/lorafuse/lora"
)

// weights are the weights of one training step, used for sampling: an adapter in the engine's
// registry. It is loaded into the registry at its first use and unloaded when it has not been used
// for a while. Unsaved weights stay in memory until then, and are in a folder afterwards.
type weights struct {
	name  string // in the registry
	owner string // name of a key

	mu     sync.Mutex
	dir    string      // of the adapter, empty while it is only in memory
	spill  string      // folder to write it to in that case
	state  *lora.State // adapter in memory, or nil
	loaded bool
	users  int
	used   time.Time
}

// hold loads weights into the registry and keeps them there until release.
func (s *Server) hold(ctx context.Context, w *weights) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.loaded {
		if err := s.enter(ctx, w); err != nil {
			return err
		}
		w.loaded = true
	}
	w.users++
	return nil
}

// enter loads weights into the registry. The caller holds w.mu.
func (s *Server) enter(ctx context.Context, w *weights) error {
	var err error
	if w.state != nil {
		_, err = s.options.Engine.Adapters().Publish(ctx, w.name, w.spill, w.state)
	} else {
		_, err = s.options.Engine.Adapters().LoadStep(ctx, w.name, w.dir)
	}
	return err
}

// release ends a hold.
func (w *weights) release() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.users--
	w.used = time.Now()
}

// replace sets w to a new state; requests in progress keep the old one. spill is a folder that does
// not exist yet, and identifies the state.
func (s *Server) replace(ctx context.Context, w *weights, state *lora.State, spill string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	next := &weights{name: w.name, spill: spill, state: state}
	if err := s.enter(ctx, next); err != nil {
		return err
	}
	if w.dir != "" {
		if err := os.RemoveAll(w.dir); err != nil {
			s.options.Logger.Error("weights that nobody samples from cannot be removed", "folder", w.dir, "error", err)
		}
	}
	w.dir, w.spill, w.state, w.loaded, w.used = "", spill, state, true, time.Now()
	return nil
}

// unloadWeights unloads weights that are not in use and have not been used since a time. Weights
// that are only in memory are written to a folder.
func (s *Server) unloadWeights(w *weights, since time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.loaded || w.users > 0 || w.used.After(since) {
		return
	}
	if w.state != nil {
		if err := save(w.spill, w.state); err != nil {
			s.options.Logger.Error("weights that nobody has sampled from for a while stay in memory", "name", w.name, "error", err)
			return
		}
		w.dir, w.state = w.spill, nil
	}
	if err := s.options.Engine.Adapters().Unload(w.name); err != nil {
		s.options.Logger.Error("weights cannot be unloaded", "name", w.name, "error", err)
	}
	w.loaded = false
}

// save writes a state as a PEFT adapter.
func save(dir string, s *lora.State) error {
	config, tensors, err := s.Tensors(true)
	if err != nil {
		return err
	}
	return lora.Save(dir, config, tensors)
}

// idle reports whether weights have not been used since a time. It does not block.
func (w *weights) idle(since time.Time) bool {
	if !w.mu.TryLock() {
		return false
	}
	defer w.mu.Unlock()
	return w.users == 0 && w.used.Before(since)
}

// registryRoot is the prefix of all weights' names in the registry.
const registryRoot = lora.ReservedPrefix

// saved returns the weights of a checkpoint in its current version. A checkpoint that replaces it
// later has other weights.
func (s *Server) saved(p *checkpoint) *weights {
	name := registryRoot + folderOf.Replace(p.Run) + "/" + p.id() + "-" + strconv.FormatInt(p.Time.UnixNano(), 36)
	return s.weightsOf(name, s.store.dir(p), p.Owner)
}

// weightsOf returns the weights of a name that are stored in dir.
func (s *Server) weightsOf(name, dir, owner string) *weights {
	s.mu.Lock()
	defer s.mu.Unlock()
	w := s.weights[name]
	if w == nil {
		w = &weights{name: name, owner: owner, dir: dir, used: time.Now()}
		s.weights[name] = w
	}
	return w
}

// Visible reports whether a client may use an adapter of the registry by its name. Adapters that
// are not weights of this server are visible to everyone.
func (s *Server) Visible(who keys.Client, adapter string) bool {
	if !strings.HasPrefix(adapter, registryRoot) {
		return true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	w := s.weights[adapter]
	return w != nil && who.Sees(w.owner)
}

// live creates a sampling session with the current weights of a model. The queue calls it.
func (s *Server) live(ctx context.Context, m *trainee, number, step int64, inflight bool) (*sampler, error) {
	training, err := m.trained()
	if err != nil {
		return nil, err
	}
	if number < 0 {
		return nil, fmt.Errorf("%w: sampling_session_seq_id: found %d, expected a number from 0", ErrRequest, number)
	}
	dir, err := s.store.newLiveDir(m.id, strconv.FormatInt(step, 10))
	if err != nil {
		return nil, err
	}
	state, err := training.Snapshot(ctx)
	if err != nil {
		return nil, err
	}
	name := registryRoot + folderOf.Replace(m.id) + "/live/" + strconv.FormatInt(step, 10)
	if inflight {
		name = registryRoot + folderOf.Replace(m.id) + "/inflight"
	}
	w := s.weightsOf(name, "", m.tenant.owner)
	if err := s.replace(ctx, w, state, dir); err != nil {
		return nil, err
	}
	return s.addSampler(m.tenant, number, w, "", m)
}

// tidySamplers unloads weights that have not been sampled from for a while, and removes weights
// that can no longer be used.
func (s *Server) tidySamplers(now time.Time) {
	s.mu.Lock()
	needed := map[*weights]bool{}
	for id, x := range s.samplers {
		if s.sessions[x.tenant.id] == nil || x.model != nil && x.weights.idle(now.Add(-samplerForget)) {
			delete(s.samplers, id)
			continue
		}
		if x.tenant.ended.IsZero() {
			needed[x.weights] = true
		}
	}
	var all []*weights
	for name, w := range s.weights {
		all = append(all, w)
		if !needed[w] && w.idle(now.Add(-samplerIdle)) {
			delete(s.weights, name)
		}
	}
	s.mu.Unlock()
	for _, w := range all {
		s.unloadWeights(w, now.Add(-samplerIdle))
	}
}
