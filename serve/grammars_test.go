package serve

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/internal/generate/constrain"
)

// Schemas are compiled one at a time, and once: who waits has the grammar of who came first,
// and a client that has gone does not wait.
func TestGrammarsWait(t *testing.T) {
	k := grammars{compiling: make(chan struct{}, 1)}
	schema := grammarSource{jsonSchema, `{"type":"string","pattern":"^a{3}$"}`}
	k.compiling <- struct{}{}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := k.of(ctx, schema)
	require.ErrorIs(t, err, context.Canceled)

	const clients = 8
	all := make(chan *constrain.Grammar, clients)
	for range clients {
		go func() {
			g, err := k.of(t.Context(), schema)
			assert.NoError(t, err)
			all <- g
		}()
	}
	<-k.compiling
	first := <-all
	for range clients - 1 {
		assert.Same(t, first, <-all)
	}

	_, err = k.of(t.Context(), grammarSource{jsonSchema, `{"type":"string","pattern":"^(a|a)*b(.*a.{20})$"}`})
	require.ErrorIs(t, err, constrain.ErrTooLarge)
	assert.ErrorContains(t, err, "#/pattern: too large: the pattern needs more than")
	assert.Empty(t, k.compiling)
}
