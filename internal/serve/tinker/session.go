package tinker

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"slices"
	"time"

	"github.com/lorafuse/lorafuse/internal/serve/keys"
	"github.com/lorafuse/lorafuse/internal/serve/web"
)

// tenant is the session of a client and its resources.
type tenant struct {
	id       string
	owner    string // name of the key
	metadata map[string]any
	name     string // display name
	context  context.Context
	cancel   context.CancelFunc // cancels its sampling

	// The fields below are guarded by Server.mu.
	seen  time.Time // time of the last request
	ended time.Time // zero while active
	why   string
}

// maxSessions and maxModels limit how many may exist at a time.
const maxSessions, maxModels = 4096, 256

func newID() string {
	var b [8]byte
	rand.Read(b[:])
	return hex.EncodeToString(b[:])
}

// session returns an active session that the client sees, and records a sign of life.
func (s *Server) session(who keys.Client, id string) (*tenant, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	found := s.sessions[id]
	switch {
	case found == nil || !who.Sees(found.owner):
		return nil, fmt.Errorf("%w: session %.100q; what a server before this one had is lost, but for what was saved", ErrNotFound, id)
	case !found.ended.IsZero():
		return nil, fmt.Errorf("%w: %s: %s", errEnded, id, found.why)
	}
	found.seen = time.Now()
	return found, nil
}

// alive records a sign of life of a session.
func (s *Server) alive(x *tenant) {
	s.mu.Lock()
	defer s.mu.Unlock()
	x.seen = time.Now()
}

// open returns an error if the server is shutting down.
func (s *Server) open() error {
	if s.drained.Load() {
		return web.Draining()
	}
	return nil
}

func (s *Server) createSession(c *web.Call) error {
	var r struct {
		Metadata map[string]any `json:"user_metadata"`
		Name     string         `json:"display_name"`
	}
	if err := c.Decode(&r); err != nil {
		return err
	}
	if err := s.open(); err != nil {
		return err
	}
	x := &tenant{id: newID(), owner: c.Who.Name, metadata: r.Metadata, name: r.Name, seen: time.Now()}
	x.context, x.cancel = context.WithCancel(s.context)
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.sessions) >= maxSessions {
		return full(5, "there are %d sessions, as many as may be", maxSessions)
	}
	s.sessions[x.id] = x
	return c.JSON(map[string]any{"type": "create_session", "session_id": x.id})
}

func (s *Server) heartbeat(c *web.Call) error {
	c.Quiet = true
	var r struct {
		Session string `json:"session_id"`
	}
	if err := c.Decode(&r); err != nil {
		return err
	}
	if _, err := s.session(c.Who, r.Session); err != nil {
		return err
	}
	return c.JSON(map[string]any{"type": "session_heartbeat"})
}

func (s *Server) finishSession(c *web.Call) error {
	var r struct {
		Reason struct {
			Type string `json:"type"`
		} `json:"reason"`
	}
	if err := c.Decode(&r); err != nil {
		return err
	}
	s.mu.Lock()
	found := s.sessions[c.Request.PathValue("session")]
	s.mu.Unlock()
	if found == nil || !c.Who.Sees(found.owner) {
		return notFound("session %.100q", c.Request.PathValue("session"))
	}
	s.end(found, false, "the client has finished it: "+r.Reason.Type)
	return c.JSON(map[string]any{})
}

// end ends a session. Calls that it has sent still run unless drop is set; then its models are
// closed. Sampling is canceled.
func (s *Server) end(x *tenant, drop bool, why string) {
	s.mu.Lock()
	if !x.ended.IsZero() {
		s.mu.Unlock()
		return
	}
	x.ended, x.why = time.Now(), why
	var models []*trainee
	for _, m := range s.models {
		if m.tenant == x {
			models = append(models, m)
		}
	}
	s.mu.Unlock()
	for _, m := range models {
		s.queue.finish(m.lane, drop, fmt.Errorf("%w: %s", errEnded, why))
	}
	x.cancel()
}

func (s *Server) listSessions(c *web.Call) error {
	limit, offset, err := page(c, 20)
	if err != nil {
		return err
	}
	s.mu.Lock()
	ids := []string{}
	for id, x := range s.sessions {
		if c.Who.Sees(x.owner) {
			ids = append(ids, id)
		}
	}
	s.mu.Unlock()
	slices.Sort(ids)
	return c.JSON(map[string]any{"sessions": part(ids, limit, offset)})
}

func (s *Server) getSession(c *web.Call) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	found := s.sessions[c.Request.PathValue("session")]
	if found == nil || !c.Who.Sees(found.owner) {
		return notFound("session %.100q", c.Request.PathValue("session"))
	}
	models, samplers := []string{}, []string{}
	for id, m := range s.models {
		if m.tenant == found {
			models = append(models, id)
		}
	}
	for id, x := range s.samplers {
		if x.tenant == found {
			samplers = append(samplers, id)
		}
	}
	slices.Sort(models)
	slices.Sort(samplers)
	return c.JSON(map[string]any{"training_run_ids": models, "sampler_ids": samplers, "user_metadata": texts(found.metadata), "display_name": orNull(found.name)})
}

// texts returns metadata as strings. Other values are formatted as fmt prints them.
func texts(metadata map[string]any) map[string]string {
	all := map[string]string{}
	for k, v := range metadata {
		if v != nil {
			all[k] = fmt.Sprint(v)
		}
	}
	return all
}

func orNull(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

// Interval of cleanups, how long an ended session is remembered, and how long unused weights stay
// loaded.
const (
	tendInterval  = 5 * time.Second
	remember      = 10 * time.Minute
	samplerIdle   = 10 * time.Minute
	samplerForget = 6 * time.Hour
)

// tend cleans up at intervals until the server is closed.
func (s *Server) tend() {
	ticks := time.NewTicker(max(10*time.Millisecond, min(tendInterval, s.options.SessionTimeout, s.options.Keep)))
	defer ticks.Stop()
	for {
		select {
		case <-s.context.Done():
			return
		case now := <-ticks.C:
			s.tidy(now)
		}
	}
}

// tidy ends sessions without a sign of life, and removes expired data.
func (s *Server) tidy(now time.Time) {
	s.mu.Lock()
	var silent []*tenant
	for id, x := range s.sessions {
		switch {
		case x.ended.IsZero() && now.Sub(x.seen) > s.options.SessionTimeout:
			silent = append(silent, x)
		case !x.ended.IsZero() && now.Sub(x.ended) > remember:
			delete(s.sessions, id)
		}
	}
	s.mu.Unlock()
	for _, x := range silent {
		s.options.Logger.Warn("a session gave no sign of life and has ended; of its models there is what was saved", "session", x.id)
		s.end(x, true, fmt.Sprintf("it gave no sign of life for %v", s.options.SessionTimeout))
	}
	s.futures.sweep(now, s.options.Keep, func(x *tenant) bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return x != nil && s.sessions[x.id] == nil
	})
	s.tidySamplers(now)
	s.store.expire(now)
}
