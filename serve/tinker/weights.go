package tinker

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/lorafuse/lorafuse/lora"
	"github.com/lorafuse/lorafuse/serve/keys"
)

// weights are those of one step of a model, which are sampled from: an adapter in the
// registry of the engine. It enters the registry when it is first used, and leaves it when
// it has not been used for a while. Weights that were not saved are in memory until then,
// and in a folder afterwards.
type weights struct {
	name  string // in the registry
	owner string // name of a key

	mu     sync.Mutex
	dir    string      // of the adapter, empty while it is in memory alone
	spill  string      // the folder for it then
	state  *lora.State // of the adapter, or nil
	loaded bool
	users  int
	used   time.Time
}

// hold brings weights into the registry, where they stay until they are given back.
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

// enter brings weights into the registry. w.mu is held.
func (s *Server) enter(ctx context.Context, w *weights) error {
	var err error
	if w.state != nil {
		_, err = s.options.Engine.Adapters().Publish(ctx, w.name, w.spill, w.state)
	} else {
		_, err = s.options.Engine.Adapters().LoadStep(ctx, w.name, w.dir)
	}
	return err
}

// release gives weights back.
func (w *weights) release() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.users--
	w.used = time.Now()
}

// replace has w stand for a state from now on; requests that are sampling keep what they
// have. spill is a folder that is not there yet, and identifies the state.
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

// unloadWeights takes weights out of the registry that nobody uses and nobody has used since
// a time. Those that are in memory alone go to a folder.
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

// save writes a state as an adapter of PEFT.
func save(dir string, s *lora.State) error {
	config, tensors, err := s.Tensors(true)
	if err != nil {
		return err
	}
	return lora.Save(dir, config, tensors)
}

// idle reports whether nobody has used weights since a time. It does not wait.
func (w *weights) idle(since time.Time) bool {
	if !w.mu.TryLock() {
		return false
	}
	defer w.mu.Unlock()
	return w.users == 0 && w.used.Before(since)
}

// registryRoot begins the names of all weights in the registry.
const registryRoot = lora.ReservedPrefix

// saved are the weights of a checkpoint, as it is now: one that takes its place later has
// others.
func (s *Server) saved(p *checkpoint) *weights {
	name := registryRoot + folderOf.Replace(p.Run) + "/" + p.id() + "-" + strconv.FormatInt(p.Time.UnixNano(), 36)
	return s.weightsOf(name, s.store.dir(p), p.owner)
}

// weightsOf returns the weights of that name, which lie in dir.
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

// Visible reports whether a client may use an adapter of the registry by its name. All may use
// those that are not weights of this server.
func (s *Server) Visible(who keys.Client, adapter string) bool {
	if !strings.HasPrefix(adapter, registryRoot) {
		return true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	w := s.weights[adapter]
	return w != nil && who.Sees(w.owner)
}

// live makes a sampling session of a model as it is now. It is called by the queue.
func (s *Server) live(ctx context.Context, m *trainee, number, step int64, inflight bool) (*sampler, error) {
	training, err := m.trained()
	if err != nil {
		return nil, err
	}
	if number < 0 {
		return nil, fmt.Errorf("%w: sampling_session_seq_id: found %d, expected a number from 0", ErrRequest, number)
	}
	dir, err := s.store.liveDir(m.id, strconv.FormatInt(step, 10))
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

// tidySamplers unloads weights that nobody has sampled from for a while, and forgets those
// that can be of no use any more.
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
