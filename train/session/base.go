package session

import (
	"fmt"
	"math/bits"
	"slices"

	"github.com/lorafuse/lorafuse/engine"
	"github.com/lorafuse/lorafuse/lora"
	"github.com/lorafuse/lorafuse/model"
)

// leastTokens is the bound of the programs of the shortest datums.
const leastTokens = 64

// logitBytes is the size of the logits that exist at once, unless that makes more than
// mostParts of them.
const (
	logitBytes = 128 << 20
	mostParts  = 16
)

// Base is a model on a device that sessions share, with the programs that they run.
// It and its sessions are used by one goroutine at a time.
type Base struct {
	runtime  *engine.Runtime
	modules  lora.Model
	limits   limits
	logits   int       // bytes of them that exist at once
	programs []program // those that were used last at the end
	sessions []*Session
}

// NewBase takes a runtime, which stays the caller's, to be closed after the base. Errors:
// model.ErrTask for a model that predicts no tokens.
func NewBase(r *engine.Runtime) (*Base, error) {
	m := r.Model()
	if err := m.CheckTask(model.NextToken); err != nil {
		return nil, fmt.Errorf("session: %w", err)
	}
	return &Base{
		runtime: r, modules: lora.ModelOf(m.Config.ModelType, m.Modules()),
		limits: limits{m.Config.MaxLength(), m.Config.VocabSize}, logits: logitBytes,
	}, nil
}

// Close ends what is left of the sessions and frees the programs.
func (b *Base) Close() {
	for _, s := range slices.Clone(b.sessions) {
		s.Close()
	}
	b.forget(func(program) bool { return true })
}

// forget frees programs.
func (b *Base) forget(which func(program) bool) {
	b.programs = slices.DeleteFunc(b.programs, func(p program) bool {
		if !which(p) {
			return false
		}
		b.runtime.Unload(p.Program)
		return true
	})
}

// passOf is the pass of a datum. It depends on nothing but the datum, so that the bits of
// its gradients do not depend on those before it.
func (b *Base) passOf(d *Datum, f form) pass {
	n := min(max(leastTokens, 1<<bits.Len(uint(len(d.Tokens)-1))), b.limits.tokens)
	return pass{form: f, width: d.width(), tokens: n, rows: max(1, min(n, b.logits/4/b.limits.vocabulary), (n+mostParts-1)/mostParts)}
}
