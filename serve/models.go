package serve

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/lorafuse/lorafuse/internal/suggest"
	"github.com/lorafuse/lorafuse/lora"
)

// modelInfo is a model or an adapter in OpenAI's form.
type modelInfo struct {
	ID        string  `json:"id"`
	Object    string  `json:"object"`
	Created   int64   `json:"created"`
	OwnedBy   string  `json:"owned_by"`
	Root      string  `json:"root"`   // folder of its files
	Parent    *string `json:"parent"` // of an adapter
	MaxLength int     `json:"max_model_len"`
	Version   string  `json:"version,omitempty"` // first digits of an adapter's digest
	// Endpoints are the endpoints that accept the model.
	Endpoints []string `json:"supported_endpoints"`
}

func (s *Server) baseInfo() modelInfo {
	return modelInfo{
		ID: s.options.Name, Object: "model", Created: s.started.Unix(), OwnedBy: "lorafuse", Root: s.options.Model.Dir,
		MaxLength: s.options.MaxLength, Endpoints: s.endpoints(),
	}
}

// endpoints returns the endpoints that the model supports.
func (s *Server) endpoints() (all []string) {
	if s.options.Engine != nil && s.format.template != nil {
		all = append(all, "/v1/chat/completions")
	}
	if s.options.Engine != nil {
		all = append(all, "/v1/completions")
	}
	if s.options.Embedder != nil {
		all = append(all, "/v1/embeddings")
	}
	return all
}

func (s *Server) adapterInfo(id string, v lora.VersionInfo) modelInfo {
	m := s.baseInfo()
	m.ID, m.Root, m.Parent, m.Version = id, v.Dir, &s.options.Name, v.Digest.Short()
	if s.options.Tuning != nil {
		if made, ok := s.options.Tuning.Model(id); ok {
			m.Created = made.Created
		}
	}
	return m
}

// sees reports whether the client may use the adapter that a reference names. Adapters of other
// clients are treated as nonexistent.
func (c *call) sees(ref string) bool {
	name, _, _ := strings.Cut(ref, "@")
	o := &c.server.options
	if o.Tuning != nil {
		if m, ok := o.Tuning.Model(name); ok && !c.who.Sees(m.Owner) {
			return false
		}
	}
	return o.Visible == nil || o.Visible(c.who, name)
}

func (s *Server) listModels(c *call) error {
	return c.json(struct {
		Object string      `json:"object"`
		Data   []modelInfo `json:"data"`
	}{"list", s.models(c)})
}

// models returns the model and the adapters that the client sees.
func (s *Server) models(c *call) []modelInfo {
	models := []modelInfo{s.baseInfo()}
	for _, info := range s.adapters() {
		for _, id := range append([]string{info.Name}, info.Aliases...) {
			if c.sees(id) {
				models = append(models, s.adapterInfo(id, info.Versions[0]))
			}
		}
	}
	models = append(models, s.tunedModels(c, models)...)
	if s.options.Engine != nil {
		folders := s.options.Engine.Adapters().Folders()
		for _, name := range slices.Sorted(maps.Keys(folders)) {
			m := s.baseInfo()
			m.ID, m.Root, m.Parent = name, folders[name], &s.options.Name
			models = append(models, m)
		}
	}
	return models
}

// tunedModels returns the models that fine-tuning jobs have made and that are not yet listed, since
// they are not loaded.
func (s *Server) tunedModels(c *call, listed []modelInfo) (models []modelInfo) {
	if s.options.Tuning == nil {
		return nil
	}
	for _, made := range s.options.Tuning.Models(c.who) {
		if slices.ContainsFunc(listed, func(m modelInfo) bool { return m.ID == made.Name }) {
			continue
		}
		m := s.baseInfo()
		m.ID, m.Created, m.Parent = made.Name, made.Created, &s.options.Name
		m.Root, _ = s.options.Tuning.Find(made.Name)
		models = append(models, m)
	}
	return models
}

// adapters returns the loaded adapters.
func (s *Server) adapters() []lora.Info {
	if s.options.Engine == nil {
		return nil
	}
	return s.options.Engine.Adapters().List()
}

func (s *Server) findModel(c *call) error {
	id := c.request.PathValue("id")
	if id == s.options.Name {
		return c.json(s.baseInfo())
	}
	lease, err := s.lease(c, id)
	if err != nil {
		return err
	}
	defer lease.Release()
	for _, info := range s.adapters() {
		for _, v := range info.Versions {
			if v.Digest == lease.Version().Digest() {
				return c.json(s.adapterInfo(id, v))
			}
		}
	}
	return &failure{status: http.StatusNotFound, message: fmt.Sprintf("the model %.200q does not exist any more", id), param: "model", code: unknownModel}
}

// target is the model or adapter that a request names.
type target struct {
	name    string // as in the request
	adapter string // in the registry, empty for the base model
	lease   *lora.Lease
	release func()
}

// target resolves the field model to the model or an adapter; without the field it is the model.
// The caller must release the target.
func (s *Server) target(c *call, given *string) (*target, error) {
	name := s.options.Name
	if given != nil {
		if name = *given; name == "" {
			return nil, faulty("model", "is empty")
		}
	}
	c.note(slog.String("model", name))
	if name == s.options.Name {
		return &target{name: name, release: func() {}}, nil
	}
	lease, err := s.lease(c, name)
	if err != nil {
		return nil, err
	}
	c.note(slog.String("adapter", lease.Version().Digest().Short()))
	return &target{name: name, adapter: name, lease: lease, release: lease.Release}, nil
}

// writer returns the target of a request that generates text.
func (s *Server) writer(c *call, model *string) (*target, error) {
	t, err := s.target(c, model)
	if err == nil && s.options.Engine == nil {
		err = invalid("model", "the model %.200q makes vectors of texts and continues none", t.name)
	}
	return t, err
}

// lease acquires an adapter.
func (s *Server) lease(c *call, name string) (*lora.Lease, error) {
	unknown := func(hint string) error {
		return &failure{status: http.StatusNotFound, message: fmt.Sprintf("the model %.200q does not exist%s", name, hint), param: "model", code: unknownModel}
	}
	nearest := func() string {
		var names []string
		for _, m := range s.models(c) {
			names = append(names, m.ID)
		}
		return suggest.DidYouMean(name, names)
	}
	if s.options.Engine == nil || !c.sees(name) {
		return nil, unknown(nearest())
	}
	lease, err := s.options.Engine.Adapters().Acquire(c.request.Context(), name)
	switch {
	case errors.Is(err, lora.ErrName):
		return nil, unknown(nearest())
	case errors.Is(err, lora.ErrNotFound):
		_, versions, _ := strings.Cut(err.Error(), lora.ErrNotFound.Error()+": ")
		if versions != "" {
			return nil, unknown(": " + versions)
		}
		return nil, unknown(nearest()) // the registry would also suggest names of other clients
	case err != nil && c.request.Context().Err() == nil && !errors.Is(err, lora.ErrFull) && !errors.Is(err, lora.ErrClosed):
		return nil, adapterFailure("model", name, err)
	}
	return lease, err
}

// adapterFailure returns the failure of a request for an adapter that cannot be loaded. The message
// contains no path of the server.
func adapterFailure(param, name string, err error) *failure {
	var unusable *lora.UnusableError
	f := &failure{status: http.StatusBadRequest, param: param, code: "adapter_unusable", cause: err}
	switch {
	case errors.Is(err, lora.ErrChanged):
		f.message = fmt.Sprintf("%s: the files of the adapter %.200q have changed since it was loaded", param, name)
	case errors.As(err, &unusable):
		f.message = fmt.Sprintf("%s: the adapter %.200q cannot be used: %s", param, name, strings.TrimPrefix(unusable.Reason(), "lora: "))
	default:
		f.status, f.code = http.StatusInternalServerError, ""
		f.message = fmt.Sprintf("the adapter %.200q cannot be loaded; the log of the server says why", name)
	}
	return f
}

// adapterRequest is the body of POST /v1/load_lora_adapter and /v1/unload_lora_adapter.
type adapterRequest struct {
	Name    string `json:"lora_name"`
	Path    string `json:"lora_path"`
	InPlace bool   `json:"load_inplace"`
}

// loadAdapter loads an adapter, or replaces a loaded one by a new version.
func (s *Server) loadAdapter(c *call) error {
	var r adapterRequest
	if err := c.decode(&r); err != nil {
		return err
	}
	name, dir := r.Name, r.Path
	registry := s.options.Engine.Adapters()
	switch {
	case name == "" || dir == "":
		return &failure{status: http.StatusBadRequest, message: "Both 'lora_name' and 'lora_path' must be provided."}
	case name == s.options.Name:
		return invalid("lora_name", "lora_name: %q is the name of the model", name)
	case !c.sees(name):
		return invalid("lora_name", "lora_name: %q is the name of another adapter", name)
	case strings.HasPrefix(name, lora.ReservedPrefix):
		return invalid("lora_name", "lora_name: found %.200q; names that begin with %s are reserved", name, lora.ReservedPrefix)
	case s.tuned(name):
		return invalid("lora_name", "lora_name: %.200q is the name of a fine-tuned model", name)
	case !r.InPlace && slices.ContainsFunc(registry.List(), func(i lora.Info) bool { return i.Name == name }):
		return invalid("lora_name", "The lora adapter '%s' has already been loaded. If you want to load the adapter in place, set 'load_inplace' to True.", name)
	}
	v, err := registry.LoadBelow(c.request.Context(), name, dir)
	switch {
	case errors.Is(err, lora.ErrName), errors.Is(err, lora.ErrTaken):
		return invalidBecause("lora_name", err)
	case errors.Is(err, lora.ErrNotFound):
		return &failure{status: http.StatusNotFound, message: fmt.Sprintf("lora_path: there is no adapter %.200q below the root of adapters", dir), param: "lora_path", cause: err}
	case errors.Is(err, lora.ErrFull), errors.Is(err, lora.ErrClosed), err != nil && c.request.Context().Err() != nil:
		return err
	case err != nil:
		return adapterFailure("lora_path", dir, err)
	}
	c.note(slog.String("model", name), slog.String("adapter", v.Digest().Short()))
	if w := v.Warnings(); len(w) > 0 {
		s.options.Logger.WarnContext(c.request.Context(), "adapter with warnings", "model", name, "warnings", strings.Join(w, "; "))
	}
	return c.text(fmt.Sprintf("Success: LoRA adapter '%s' added successfully.", name))
}

// tuned reports whether a model name belongs to a fine-tuning job.
func (s *Server) tuned(name string) bool {
	if s.options.Tuning == nil {
		return false
	}
	_, ok := s.options.Tuning.Find(name)
	return ok
}

// unloadAdapter unloads an adapter; running requests keep it until they end.
func (s *Server) unloadAdapter(c *call) error {
	var r adapterRequest
	if err := c.decode(&r); err != nil {
		return err
	}
	name := r.Name
	if name == "" {
		return invalid("lora_name", "'lora_name' needs to be provided to unload a LoRA adapter.")
	}
	err := lora.ErrNotFound
	if c.sees(name) {
		err = s.options.Engine.Adapters().Unload(name)
	}
	if errors.Is(err, lora.ErrNotFound) || errors.Is(err, lora.ErrName) {
		return &failure{status: http.StatusNotFound, message: fmt.Sprintf("The lora adapter '%.200s' cannot be found.", name), param: "lora_name", cause: err}
	}
	if err != nil {
		return err
	}
	c.note(slog.String("model", name))
	return c.text(fmt.Sprintf("Success: LoRA adapter '%s' removed successfully.", name))
}
