package tinker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"sync"
	"time"

	"github.com/lorafuse/lorafuse/internal/serve/keys"
	"github.com/lorafuse/lorafuse/internal/serve/web"
)

// trainee is a model in training.
type trainee struct {
	id     string
	tenant *tenant
	lane   *lane
	submit sync.Mutex // held while a call gets its future and its place in the queue

	// The fields below belong to the task of the lane that the queue runs.
	training Session // nil if it could not be started
	broken   error   // why training is nil
	dirty    bool    // trained since the last save

	info sync.Mutex // guards run
	run  *run
}

// current returns the training run of a model, or nil before it has begun.
func (m *trainee) current() *run {
	m.info.Lock()
	defer m.info.Unlock()
	return m.run
}

// modelID returns the name of a session's model. Clients rely on its form.
func modelID(session string, number int64) string {
	return session + ":train:" + strconv.FormatInt(number, 10)
}

// model returns a model that the client sees and whose session has not ended.
func (s *Server) model(who keys.Client, id string) (*trainee, error) {
	s.mu.Lock()
	m := s.models[id]
	s.mu.Unlock()
	if m == nil || !who.Sees(m.tenant.owner) {
		return nil, fmt.Errorf("%w: model %.100q", ErrNotFound, id)
	}
	if _, err := s.session(who, m.tenant.id); err != nil {
		return nil, err
	}
	return m, nil
}

// addModel returns the model of a number, and creates it if it does not exist.
func (s *Server) addModel(x *tenant, number int64) (*trainee, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	id := modelID(x.id, number)
	if m := s.models[id]; m != nil {
		return m, nil
	}
	if !x.ended.IsZero() {
		return nil, fmt.Errorf("%w: %s", errEnded, x.why)
	}
	if len(s.models) >= maxModels {
		return nil, full(5, "there are %d models, as many as may be", maxModels)
	}
	m := &trainee{id: id, tenant: x}
	m.lane = newLane(0, func() { s.unload(m) })
	s.models[id] = m
	return m, nil
}

// unload frees the model of an ended session.
func (s *Server) unload(m *trainee) {
	if m.training != nil {
		m.training.Close()
	}
	s.store.dropLive(m.id)
	if run := m.current(); run != nil {
		if err := s.store.conclude(run.ID); err != nil {
			s.options.Logger.Error("a training run could not be noted as ended", "model", m.id, "error", err)
		}
	}
	if m.dirty {
		s.options.Logger.Warn("a model was trained since it was last saved, and is dropped", "model", m.id)
	}
	s.mu.Lock()
	delete(s.models, m.id)
	s.mu.Unlock()
}

// later queues a call of a model, as t describes it, and answers with its future. If a call with the same number was
// queued before, it answers with the future of that call.
func (s *Server) later(c *web.Call, m *trainee, number int64, t task, do func(ctx context.Context) (answer, error)) error {
	if err := s.open(); err != nil {
		return err
	}
	m.submit.Lock()
	defer m.submit.Unlock()
	f, fresh := s.futures.begin(m.id+":"+strconv.FormatInt(number, 10), m.tenant, m.tenant.owner)
	if fresh {
		t.drop = func(err error) { f.finish(s.failed(err)) }
		t.do = func(ctx context.Context) {
			began := time.Now()
			a, err := s.guard(ctx, do)
			if err != nil {
				a = s.failed(err)
			}
			s.options.Logger.LogAttrs(ctx, slog.LevelDebug, "computed", slog.String("future", f.id), slog.Duration("took", time.Since(began)))
			f.finish(a)
		}
		if err := s.queue.add(m.lane, number, &t); err != nil {
			s.futures.forget(f)
			return err
		}
	}
	return promise(c, f, m.id, nil)
}

// guard runs do and returns a panic as an error of that call.
func (s *Server) guard(ctx context.Context, do func(ctx context.Context) (answer, error)) (a answer, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v", p)
		}
	}()
	return do(ctx)
}

// failed returns the answer to a call that has failed. It discloses only the kind of an internal
// error; the log has the details.
func (s *Server) failed(err error) answer {
	for _, user := range userErrors {
		if errors.Is(err, user) {
			return answer{failed: &failed{err.Error(), "user"}}
		}
	}
	if errors.Is(err, errEnded) || errors.Is(err, context.Canceled) {
		return answer{failed: &failed{err.Error(), "server"}}
	}
	s.options.Logger.Error("a call failed", "error", err)
	return answer{failed: &failed{"the server failed; its log says why", "server"}}
}

// promise answers with a future.
func promise(c *web.Call, f *future, model string, sequences []string) error {
	type promise struct {
		ID        string   `json:"request_id"`
		Model     string   `json:"model_id,omitempty"`
		Sequences []string `json:"sample_sequence_ids,omitempty"`
	}
	return c.JSON(promise{f.id, model, sequences})
}

// retrieve answers with the result of a future, for which it waits up to the poll timeout.
func (s *Server) retrieve(c *web.Call) error {
	c.Quiet = true
	var r struct {
		ID string `json:"request_id"`
	}
	if err := c.Decode(&r); err != nil {
		return err
	}
	f := s.futures.find(r.ID)
	if f == nil || !c.Who.Sees(f.owner) {
		return notFound("request %.100q; what a server before this one had is lost", r.ID)
	}
	if f.tenant != nil {
		s.alive(f.tenant)
	}
	hold := time.NewTimer(s.options.Poll)
	defer hold.Stop()
	if !s.futures.wait(c.Request.Context(), f, hold.C, s.draining) {
		return c.JSON(map[string]any{"type": "try_again", "request_id": f.id, "queue_state": "active", "queue_state_reason": nil})
	}
	switch a := f.answer; {
	case a.failed != nil:
		return c.JSON(a.failed)
	case a.proto != nil:
		return c.Bytes("application/x-protobuf", a.proto)
	default:
		return c.Bytes("application/json", a.json)
	}
}

// number checks the sequence number of a call of a model.
func number(seq *int64) (int64, error) {
	if seq == nil || *seq < 1 {
		return 0, invalid("seq_id: expected a number from 1")
	}
	return *seq, nil
}

// getInfo answers with the description of a model.
func (s *Server) getInfo(c *web.Call) error {
	var r struct {
		Model string `json:"model_id"`
	}
	if err := c.Decode(&r); err != nil {
		return err
	}
	m, err := s.model(c.Who, r.Model)
	if err != nil {
		return err
	}
	run := m.current()
	if run == nil {
		return invalid("model %s is not begun yet", m.id)
	}
	return c.JSON(map[string]any{
		"type": "get_info", "model_id": m.id, "is_lora": true, "lora_rank": run.Adapter.Rank, "model_name": s.options.Name,
		"model_data":       map[string]any{"arch": s.options.Model.Config.ModelType, "model_name": s.options.Name, "tokenizer_id": s.options.TokenizerID},
		"optimizer_config": optimizerConfig(run.Adapter),
	})
}
