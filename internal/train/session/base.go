package session

import (
	"fmt"
	"maps"
	"math/bits"
	"slices"

	"github.com/lorafuse/lorafuse/internal/engine"
	"github.com/lorafuse/lorafuse/internal/host"
	"github.com/lorafuse/lorafuse/internal/model"
	"github.com/lorafuse/lorafuse/lora"
)

// leastTokens is the bound of the programs of the shortest datums.
const leastTokens = 64

// logitBytes is the size of the logits that exist at once, unless that makes more than
// mostParts of them.
const (
	logitBytes = 128 << 20
	mostParts  = 16
)

// Base is a model on a device that sessions share. It and its sessions are used by one
// goroutine at a time.
type Base struct {
	host     *host.Host
	modules  lora.Model
	limits   limits
	logits   int // bytes of them that exist at once
	specs    map[program]engine.Spec
	sessions []*Session
}

// NewBase returns a base on a host, which stays the caller's, to be closed after the base.
// Errors: model.ErrTask for a model that predicts no tokens.
func NewBase(h *host.Host) (*Base, error) {
	m := h.Model()
	if err := m.CheckTask(model.NextToken); err != nil {
		return nil, fmt.Errorf("session: %w", err)
	}
	return &Base{
		host: h, modules: lora.ModelOf(m.Config.ModelType, m.Modules()),
		limits: limits{m.Config.MaxLength(), m.Config.VocabSize}, logits: logitBytes, specs: map[program]engine.Spec{},
	}, nil
}

// Close closes the sessions that are left.
func (b *Base) Close() {
	for _, s := range slices.Clone(b.sessions) {
		s.Close()
	}
}

// forget frees the programs of a session, unless others run them.
func (b *Base) forget(s *Session) {
	b.host.UnloadFunc(func(_ string, p *engine.Program) bool {
		return p.Fits(s.slot) && !slices.ContainsFunc(b.sessions, func(x *Session) bool { return p.Fits(x.slot) })
	})
	if shape := s.slot.Shape(); !slices.ContainsFunc(b.sessions, func(x *Session) bool { return x.slot.Shape() == shape }) {
		maps.DeleteFunc(b.specs, func(p program, _ engine.Spec) bool { return p.shape == shape })
	}
}

// passOf returns the pass of a datum. It depends only on the datum, so that the bits of
// its gradients do not depend on earlier data.
func (b *Base) passOf(d *Datum, f form) pass {
	n := min(max(leastTokens, 1<<bits.Len(uint(len(d.Tokens)-1))), b.limits.tokens)
	return pass{form: f, width: d.width(), tokens: n, rows: max(1, min(n, b.logits/4/b.limits.vocabulary), (n+mostParts-1)/mostParts)}
}
