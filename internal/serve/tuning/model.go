package tuning

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/lorafuse/lorafuse/internal/fsatomic"
	"github.com/lorafuse/lorafuse/internal/serve/keys"
	"github.com/lorafuse/lorafuse/internal/serve/store"
)

// Model is an adapter that a job has made.
type Model struct {
	Name    string `json:"name"`
	Job     string `json:"job"`
	Owner   string `json:"owner,omitempty"` // of the job
	Dir     string `json:"dir"`             // in the folder of adapters
	Step    int    `json:"step,omitempty"`  // if it is a checkpoint
	Created int64  `json:"created"`
}

// Key implements store.Record.
func (m Model) Key() string { return m.Name }

// OwnedBy implements store.Record.
func (m Model) OwnedBy() string { return m.Owner }

// Find returns the folder of an adapter that a job has made; see [lora.RegistryOptions].
func (s *Service) Find(name string) (dir string, ok bool) {
	m, ok := s.Model(name)
	return s.path(adaptersDir, m.Dir), ok
}

// Model returns the record of an adapter that a job has made, regardless of its owner.
func (s *Service) Model(name string) (Model, bool) { return s.models.Get(name) }

// Models returns the adapters of jobs that a client sees, latest first. Checkpoints are not listed,
// though requests can use them.
func (s *Service) Models(who keys.Client) []Model {
	all := s.models.List(who, func(x, y Model) int {
		return cmp.Or(cmp.Compare(y.Created, x.Created), cmp.Compare(x.Name, y.Name))
	})
	return slices.DeleteFunc(all, func(m Model) bool { return m.Step > 0 })
}

// DeleteModel removes an adapter of a job that a client sees. Running requests keep it until they
// end. It fails with ErrNotFound.
func (s *Service) DeleteModel(who keys.Client, name string) error {
	s.mu.Lock()
	m, ok := s.models.Find(who, name)
	err := error(&Error{Kind: ErrNotFound, Param: "model", Code: "model_not_found", Message: fmt.Sprintf("there is no fine-tuned model %.200q", name)})
	if ok {
		err = s.update(func(t *store.Tx) error { return s.models.Remove(t, name) })
	}
	s.mu.Unlock()
	if err == nil {
		s.forget(m)
	}
	return err
}

// forget removes an adapter without a record from the registry and from disk.
func (s *Service) forget(m Model) {
	dir := s.path(adaptersDir, m.Dir)
	if err := fsatomic.RemoveDir(dir); err != nil {
		s.options.Logger.Warn("the files of an adapter that was removed are still there", "model", m.Name, "error", err)
	}
	if s.loaded(m.Name) != dir {
		return
	}
	if err := s.registry.Unload(m.Name); err != nil {
		s.options.Logger.Warn("an adapter that was removed is still loaded", "model", m.Name, "error", err)
	}
}

// loaded returns the folder of a loaded adapter, or "" if it is not loaded.
func (s *Service) loaded(name string) string {
	for _, info := range s.registry.List() {
		if info.Name == name {
			return info.Versions[0].Dir
		}
	}
	return ""
}

// taken returns a function that reports whether a name is in use elsewhere.
func (s *Service) taken() func(name string) bool {
	names := map[string]bool{s.options.Name: true}
	for _, info := range s.registry.List() {
		names[info.Name] = true
		for _, alias := range info.Aliases {
			names[alias] = true
		}
	}
	return func(name string) bool { return names[name] || s.options.Taken(name) }
}

// nameFor returns the name of a job's adapter: its suffix if that is free. The caller holds s.mu.
func (s *Service) nameFor(j *Job, taken func(string) bool) string {
	free := func(name string) bool {
		if _, ok := s.models.Get(name); ok || taken(name) {
			return false
		}
		for _, other := range s.jobs.All() {
			if other.Name == name && other.ID != j.ID && !other.Status.Ended() {
				return false
			}
		}
		return true
	}
	suffix := j.Request.Suffix
	switch {
	case suffix == "":
		return "ft-" + j.tag()
	case free(suffix):
		return suffix
	}
	return suffix + "-" + j.tag()
}

// checkpointName returns the name of a job's adapter after a step.
func (j *Job) checkpointName(step int) string { return fmt.Sprintf("%s-step-%d", j.Name, step) }

// keep copies an adapter to its folder in the service.
func (s *Service) keep(from, dir string) error {
	return written(fsatomic.ReplaceDir(s.path(adaptersDir, dir), func(tmp string) error { return copyAdapter(from, tmp) }))
}
