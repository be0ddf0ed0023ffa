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

// Base is a model on a device that sessions share, with the programs that they run.
// It and its sessions are used by one goroutine at a time.
type Base struct {
	runtime  *engine.Runtime
	modules  lora.Model
	limits   limits
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
		limits: limits{m.Config.MaxLength(), m.Config.VocabSize},
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

// bound is the bound of the program for datums of n tokens: it depends on nothing but n, so
// that the bits of a datum's gradients do not depend on those before it.
func (b *Base) bound(n int) int {
	return min(max(leastTokens, 1<<bits.Len(uint(n-1))), b.limits.tokens)
}
