package tinker

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/lorafuse/lorafuse/internal/serve/web"
)

// This file implements the queries about runs and checkpoints.

// shownRun is the protocol's TrainingRun.
type shownRun struct {
	ID          string            `json:"training_run_id"`
	BaseModel   string            `json:"base_model"`
	Owner       string            `json:"model_owner"`
	IsLora      bool              `json:"is_lora"`
	Corrupted   bool              `json:"corrupted"`
	Rank        int               `json:"lora_rank"`
	Last        time.Time         `json:"last_request_time"`
	Checkpoint  *shownCheckpoint  `json:"last_checkpoint"`
	ForSampling *shownCheckpoint  `json:"last_sampler_checkpoint"`
	Metadata    map[string]string `json:"user_metadata"`
}

// shownCheckpoint is the protocol's Checkpoint.
type shownCheckpoint struct {
	ID       string            `json:"checkpoint_id"`
	Type     string            `json:"checkpoint_type"`
	Time     time.Time         `json:"time"`
	Path     string            `json:"tinker_path"`
	Bytes    int64             `json:"size_bytes"`
	Public   bool              `json:"public"`
	Metadata map[string]string `json:"user_metadata"`
	Expires  *time.Time        `json:"expires_at"`
}

// local is the owner of objects that were created without a key.
const local = "local"

func showCheckpoint(p checkpoint) *shownCheckpoint {
	x := &shownCheckpoint{ID: p.id(), Time: p.Time, Path: p.URI(), Bytes: p.Bytes, Metadata: p.Metadata, Expires: p.Expires}
	for _, k := range kinds {
		if k.folder == p.Kind {
			x.Type = k.name
		}
	}
	return x
}

// showRun converts a run to the protocol's form. all holds the checkpoints of all runs, latest
// first.
func showRun(r *run, all []checkpoint) *shownRun {
	x := &shownRun{ID: r.ID, BaseModel: r.BaseModel, Owner: cmp.Or(r.Owner, local), IsLora: true, Rank: r.Adapter.Rank, Last: r.Last, Metadata: r.Metadata}
	for _, p := range all {
		switch {
		case p.Run != r.ID:
		case p.Kind == trainingKind.folder && x.Checkpoint == nil:
			x.Checkpoint = showCheckpoint(p)
		case p.Kind == samplerKind.folder && x.ForSampling == nil:
			x.ForSampling = showCheckpoint(p)
		}
	}
	return x
}

// page reads the limit and offset of a list request.
func page(c *web.Call, normal int) (limit, offset int, err error) {
	limit = normal
	for name, to := range map[string]*int{"limit": &limit, "offset": &offset} {
		text := c.Request.URL.Query().Get(name)
		if text == "" {
			continue
		}
		if *to, err = strconv.Atoi(text); err != nil || *to < 0 {
			return 0, 0, invalid("%s: found %.40q, expected a number from 0", name, text)
		}
	}
	return limit, offset, nil
}

// part returns a page of a list.
func part[T any](all []T, limit, offset int) []T {
	offset = min(offset, len(all))
	return all[offset:min(len(all), offset+min(limit, len(all)))]
}

// cursor describes which page of a list a response holds.
type cursor struct {
	Offset int `json:"offset"`
	Limit  int `json:"limit"`
	Total  int `json:"total_count"`
}

func (s *Server) listRuns(c *web.Call) error {
	limit, offset, err := page(c, 20)
	if err != nil {
		return err
	}
	runs, checkpoints := s.store.list(c.Who)
	shown := []*shownRun{}
	for _, r := range part(runs, limit, offset) {
		shown = append(shown, showRun(&r, checkpoints))
	}
	return c.JSON(map[string]any{"training_runs": shown, "cursor": cursor{offset, limit, len(runs)}})
}

// findRun returns the run in the path of a request.
func (s *Server) findRun(c *web.Call) (*run, []checkpoint, error) {
	id := c.Request.PathValue("run")
	runs, checkpoints := s.store.list(c.Who)
	for _, r := range runs {
		if r.ID == id {
			return &r, checkpoints, nil
		}
	}
	return nil, nil, fmt.Errorf("%w: training run %.100q", ErrNotFound, id)
}

func (s *Server) getRun(c *web.Call) error {
	r, checkpoints, err := s.findRun(c)
	if err != nil {
		return err
	}
	return c.JSON(showRun(r, checkpoints))
}

func (s *Server) listCheckpoints(c *web.Call) error {
	r, checkpoints, err := s.findRun(c)
	if err != nil {
		return err
	}
	shown := []*shownCheckpoint{}
	for _, p := range checkpoints {
		if p.Run == r.ID {
			shown = append(shown, showCheckpoint(p))
		}
	}
	return c.JSON(map[string]any{"checkpoints": shown, "cursor": nil})
}

func (s *Server) listAll(c *web.Call) error {
	limit, offset, err := page(c, 100)
	if err != nil {
		return err
	}
	_, checkpoints := s.store.list(c.Who)
	shown := []*shownCheckpoint{}
	for _, p := range part(checkpoints, limit, offset) {
		shown = append(shown, showCheckpoint(p))
	}
	return c.JSON(map[string]any{"checkpoints": shown, "cursor": cursor{offset, limit, len(checkpoints)}})
}

// checkpoint returns the checkpoint in the path of a request.
func (s *Server) checkpoint(c *web.Call) (*checkpoint, error) {
	return s.store.at(c.Who, c.Request.PathValue("run"), c.Request.PathValue("kind"), c.Request.PathValue("name"))
}

func (s *Server) deleteCheckpoint(c *web.Call) error {
	p, err := s.checkpoint(c)
	if errors.Is(err, ErrNotFound) && s.store.wasRemoved(c.Who, scheme+c.Request.PathValue("run")+"/"+c.Request.PathValue("kind")+"/"+c.Request.PathValue("name")) {
		err = nil // by this client, which missed the response
	}
	if err == nil && p != nil {
		err = s.store.remove(p)
	}
	if err != nil {
		return err
	}
	c.WriteHeader(http.StatusNoContent)
	return nil
}

func (s *Server) setTTL(c *web.Call) error {
	var r struct {
		TTL *int64 `json:"ttl_seconds"`
	}
	if err := c.Decode(&r); err != nil {
		return err
	}
	p, err := s.checkpoint(c)
	if err != nil {
		return err
	}
	at, err := expiry(r.TTL)
	if err != nil {
		return err
	}
	if err := s.store.setExpiry(p, at); err != nil {
		return err
	}
	c.WriteHeader(http.StatusNoContent)
	return nil
}

func (s *Server) weightsInfo(c *web.Call) error {
	var r struct {
		Path string `json:"tinker_path"`
	}
	if err := c.Decode(&r); err != nil {
		return err
	}
	p, err := s.store.find(c.Who, r.Path)
	if err != nil {
		return err
	}
	return c.JSON(map[string]any{
		"base_model": p.BaseModel, "is_lora": true, "lora_rank": p.Adapter.Rank, "optimizer_config": optimizerConfig(p.Adapter),
		"train_attn": p.Adapter.Attention, "train_mlp": p.Adapter.MLP, "train_unembed": p.Adapter.Unembed,
	})
}

// Calls that clients make before any other.

func (s *Server) health(c *web.Call) error {
	c.Quiet = true
	return c.JSON(map[string]any{"status": "ok"})
}

func (s *Server) clientConfig(c *web.Call) error {
	return c.JSON(map[string]any{
		"pjwt_auth_enabled": false, "credential_default_source": "api_key", "parallel_fwdbwd_chunks": true, "proto_compress_fwdbwd": false,
		"sample_max_concurrent_requests": s.options.MaxSamples, "sample_use_retrieve_futures": false, "sample_join_sampling_session": false, "custom_loss_server_side": false,
	})
}

func (s *Server) dynamicConfig(c *web.Call) error {
	c.Quiet = true
	return c.JSON(map[string]any{"refresh_interval_sec": 300, "sample_cancel_enabled": false, "sample_cancel_max_batch_size": 64})
}

func (s *Server) capabilities(c *web.Call) error {
	return c.JSON(map[string]any{"supported_models": []map[string]any{
		{"model_name": s.options.Name, "max_context_length": s.options.MaxLength, "trainable": true, "sampleable": true},
	}})
}

// telemetry accepts the telemetry of clients and discards it.
func (s *Server) telemetry(c *web.Call) error {
	c.Quiet = true
	return c.JSON(map[string]any{"status": "accepted"})
}
