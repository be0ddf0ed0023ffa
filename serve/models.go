package serve

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/lorafuse/lorafuse/internal/serve/web"
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
	Rank      int     `json:"rank,omitempty"`    // the largest of an adapter's modules
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
		all = append(all, "/v1/chat/completions", "/v1/responses")
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
	m.ID, m.Root, m.Parent, m.Version, m.Rank = id, v.Dir, &s.options.Name, v.Digest.Short(), v.Rank
	if s.options.Tuning != nil {
		if made, ok := s.options.Tuning.Model(id); ok {
			m.Created = made.Created
		}
	}
	return m
}

// sees reports whether the client may use the adapter that a reference names. Adapters of other
// clients are treated as nonexistent.
func (s *Server) sees(c *web.Call, ref string) bool {
	name, _, _ := strings.Cut(ref, "@")
	o := &s.options
	if o.Tuning != nil {
		if m, ok := o.Tuning.Model(name); ok && !c.Who.Sees(m.Owner) {
			return false
		}
	}
	return o.Visible == nil || o.Visible(c.Who, name)
}

func (s *Server) listModels(c *web.Call) error {
	return c.JSON(struct {
		Object string      `json:"object"`
		Data   []modelInfo `json:"data"`
	}{"list", s.models(c)})
}

// models returns the model and the adapters that the client sees.
func (s *Server) models(c *web.Call) []modelInfo {
	models := []modelInfo{s.baseInfo()}
	for _, info := range s.adapters() {
		for _, id := range append([]string{info.Name}, info.Aliases...) {
			if s.sees(c, id) {
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
func (s *Server) tunedModels(c *web.Call, listed []modelInfo) (models []modelInfo) {
	if s.options.Tuning == nil {
		return nil
	}
	for _, made := range s.options.Tuning.Models(c.Who) {
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

func (s *Server) findModel(c *web.Call) error {
	id := c.Request.PathValue("id")
	if id == s.options.Name {
		return c.JSON(s.baseInfo())
	}
	lease, err := s.lease(c, id)
	if err != nil {
		return err
	}
	defer lease.Release()
	for _, info := range s.adapters() {
		for _, v := range info.Versions {
			if v.Digest == lease.Version().Digest() {
				return c.JSON(s.adapterInfo(id, v))
			}
		}
	}
	return &web.Failure{Status: http.StatusNotFound, Message: fmt.Sprintf("the model %.200q does not exist any more", id), Param: "model", Code: unknownModel}
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
func (s *Server) target(c *web.Call, given *string) (*target, error) {
	name := s.options.Name
	if given != nil {
		if name = *given; name == "" {
			return nil, web.Faulty("model", "is empty")
		}
	}
	c.Note(slog.String("model", name))
	if name == s.options.Name {
		return &target{name: name, release: func() {}}, nil
	}
	lease, err := s.lease(c, name)
	if err != nil {
		return nil, err
	}
	c.Note(slog.String("adapter", lease.Version().Digest().Short()))
	return &target{name: name, adapter: name, lease: lease, release: lease.Release}, nil
}

// writer returns the target of a request that generates text.
func (s *Server) writer(c *web.Call, model *string) (*target, error) {
	t, err := s.target(c, model)
	if err == nil && s.options.Engine == nil {
		err = web.Invalid("model", "the model %.200q makes vectors of texts and continues none", t.name)
	}
	return t, err
}

// lease acquires an adapter.
func (s *Server) lease(c *web.Call, name string) (*lora.Lease, error) {
	unknown := func(hint string) error {
		return &web.Failure{Status: http.StatusNotFound, Message: fmt.Sprintf("the model %.200q does not exist%s", name, hint), Param: "model", Code: unknownModel}
	}
	nearest := func() string {
		var names []string
		for _, m := range s.models(c) {
			names = append(names, m.ID)
		}
		return suggest.DidYouMean(name, names)
	}
	if s.options.Engine == nil || !s.sees(c, name) {
		return nil, unknown(nearest())
	}
	lease, err := s.options.Engine.Adapters().Acquire(c.Request.Context(), name)
	switch {
	case errors.Is(err, lora.ErrName):
		return nil, unknown(nearest())
	case errors.Is(err, lora.ErrNotFound):
		_, versions, _ := strings.Cut(err.Error(), lora.ErrNotFound.Error()+": ")
		if versions != "" {
			return nil, unknown(": " + versions)
		}
		return nil, unknown(nearest()) // the registry would also suggest names of other clients
	case err != nil && c.Request.Context().Err() == nil && !errors.Is(err, lora.ErrFull) && !errors.Is(err, lora.ErrClosed):
		return nil, adapterFailure("model", name, err)
	}
	return lease, err
}

// adapterFailure returns the failure of a request for an adapter that cannot be loaded. The message
// contains no path of the server.
func adapterFailure(param, name string, err error) *web.Failure {
	var unusable *lora.UnusableError
	f := &web.Failure{Status: http.StatusBadRequest, Param: param, Code: "adapter_unusable", Cause: err}
	switch {
	case errors.Is(err, lora.ErrChanged):
		f.Message = fmt.Sprintf("%s: the files of the adapter %.200q have changed since it was loaded", param, name)
	case errors.As(err, &unusable):
		f.Message = fmt.Sprintf("%s: the adapter %.200q cannot be used: %s", param, name, strings.TrimPrefix(unusable.Reason(), "lora: "))
	default:
		f.Status, f.Code = http.StatusInternalServerError, ""
		f.Message = fmt.Sprintf("the adapter %.200q cannot be loaded; the log of the server says why", name)
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
func (s *Server) loadAdapter(c *web.Call) error {
	var r adapterRequest
	if err := c.Decode(&r); err != nil {
		return err
	}
	name, dir := r.Name, r.Path
	registry := s.options.Engine.Adapters()
	switch {
	case name == "" || dir == "":
		return &web.Failure{Status: http.StatusBadRequest, Message: "Both 'lora_name' and 'lora_path' must be provided."}
	case name == s.options.Name:
		return web.Invalid("lora_name", "lora_name: %q is the name of the model", name)
	case !s.sees(c, name):
		return web.Invalid("lora_name", "lora_name: %q is the name of another adapter", name)
	case strings.HasPrefix(name, lora.ReservedPrefix):
		return web.Invalid("lora_name", "lora_name: found %.200q; names that begin with %s are reserved", name, lora.ReservedPrefix)
	case s.tuned(name):
		return web.Invalid("lora_name", "lora_name: %.200q is the name of a fine-tuned model", name)
	case !r.InPlace && slices.ContainsFunc(registry.List(), func(i lora.Info) bool { return i.Name == name }):
		return web.Invalid("lora_name", "The lora adapter '%s' has already been loaded. If you want to load the adapter in place, set 'load_inplace' to True.", name)
	}
	v, err := registry.LoadBelow(c.Request.Context(), name, dir)
	switch {
	case errors.Is(err, lora.ErrName), errors.Is(err, lora.ErrTaken):
		return invalidBecause("lora_name", err)
	case errors.Is(err, lora.ErrNotFound):
		return &web.Failure{Status: http.StatusNotFound, Message: fmt.Sprintf("lora_path: there is no adapter %.200q below the root of adapters", dir), Param: "lora_path", Cause: err}
	case errors.Is(err, lora.ErrFull), errors.Is(err, lora.ErrClosed), err != nil && c.Request.Context().Err() != nil:
		return err
	case err != nil:
		return adapterFailure("lora_path", dir, err)
	}
	c.Note(slog.String("model", name), slog.String("adapter", v.Digest().Short()))
	if w := v.Warnings(); len(w) > 0 {
		s.options.Logger.WarnContext(c.Request.Context(), "adapter with warnings", "model", name, "warnings", strings.Join(w, "; "))
	}
	return text(c, fmt.Sprintf("Success: LoRA adapter '%s' added successfully.", name))
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
func (s *Server) unloadAdapter(c *web.Call) error {
	var r adapterRequest
	if err := c.Decode(&r); err != nil {
		return err
	}
	name := r.Name
	if name == "" {
		return web.Invalid("lora_name", "'lora_name' needs to be provided to unload a LoRA adapter.")
	}
	err := lora.ErrNotFound
	if s.sees(c, name) {
		err = s.options.Engine.Adapters().Unload(name)
	}
	if errors.Is(err, lora.ErrNotFound) || errors.Is(err, lora.ErrName) {
		return &web.Failure{Status: http.StatusNotFound, Message: fmt.Sprintf("The lora adapter '%.200s' cannot be found.", name), Param: "lora_name", Cause: err}
	}
	if err != nil {
		return err
	}
	c.Note(slog.String("model", name))
	return text(c, fmt.Sprintf("Success: LoRA adapter '%s' removed successfully.", name))
}

// text writes a plain-text response.
func text(c *web.Call, s string) error { return c.Bytes("text/plain; charset=utf-8", []byte(s)) }
