package tinker

import (
	"context"
	"log/slog"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/dev/testdevice"
	"github.com/lorafuse/lorafuse/internal/model"
	"github.com/lorafuse/lorafuse/internal/serve/batching"
	"github.com/lorafuse/lorafuse/lora"
)

// Weights that nobody has sampled from for a while leave memory for a folder, and come back
// from there as they were.
func TestSpill(t *testing.T) {
	ctx := context.Background()
	m, err := model.Open("../../../testdata/peft/base/small-llama")
	require.NoError(t, err)
	defer m.Close()
	e, err := batching.New(ctx, testdevice.Open(t, backend.Options{Threads: 1}), m, batching.Options{MaxTexts: 2})
	require.NoError(t, err)
	defer e.Close()
	state, err := lora.LoadState("../../../testdata/peft/dora-rslora/adapter", m, m.Config.ModelType, m.Modules())
	require.NoError(t, err)
	s := &Server{options: Options{Engine: e, Logger: slog.Default()}}
	w := &weights{name: registryRoot + "m/live/1"}
	spill := filepath.Join(t.TempDir(), "1")
	require.NoError(t, s.replace(ctx, w, state, spill))
	require.NoError(t, s.hold(ctx, w))
	s.unloadWeights(w, time.Now().Add(time.Hour))
	assert.NoDirExists(t, spill, "in use")
	w.release()
	s.unloadWeights(w, time.Now().Add(-time.Hour))
	assert.NoDirExists(t, spill, "used a moment ago")
	s.unloadWeights(w, time.Now().Add(time.Hour))
	assert.Nil(t, w.state)
	require.ErrorIs(t, e.Adapters().Unload(w.name), lora.ErrNotFound)

	require.NoError(t, s.hold(ctx, w))
	l, err := e.Adapters().Acquire(ctx, w.name)
	require.NoError(t, err)
	assert.Equal(t, state.Values, l.Version().State().Values)
	l.Release()
	w.release()
	require.NoError(t, s.replace(ctx, w, state, filepath.Join(t.TempDir(), "2")))
	assert.NoDirExists(t, spill, "nobody can sample from it any more")
}
