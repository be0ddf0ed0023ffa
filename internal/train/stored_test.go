package train_test

import (
	"context"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/internal/bytesize"
	"github.com/lorafuse/lorafuse/internal/train"
)

// TestStoredActivations: at precision bf16 activations take about half of the
// memory, computed again or not, and losses stay near those of f32.
func TestStoredActivations(t *testing.T) {
	model := writeModel(t, filepath.Join(t.TempDir(), "model"))
	planned := func(sets ...string) train.Memory {
		r, err := train.New(context.Background(), budgeted(t, model, append(sets, "backend=cpu")...), train.Observer{})
		require.NoError(t, err)
		defer r.Close()
		return r.Memory()
	}
	for _, again := range []string{"false", "true"} {
		set := "activation_checkpointing=" + again
		exact, stored := planned(set, "precision=f32"), planned(set, "precision=bf16")
		ratio := float64(stored.Activations) / float64(exact.Activations)
		t.Logf("%s: activations %s, stored %s: %.3f", set, bytesize.Binary(exact.Activations), bytesize.Binary(stored.Activations), ratio)
		assert.LessOrEqual(t, ratio, 0.55)
		assert.Less(t, stored.Total(), exact.Total())
	}
	exact, err := try(t, budgeted(t, model, "backend=cpu", "precision=f32", "steps=3"))
	require.NoError(t, err)
	stored, err := try(t, budgeted(t, model, "backend=cpu", "precision=bf16", "steps=3"))
	require.NoError(t, err)
	require.Len(t, stored.losses, len(exact.losses))
	for i, l := range exact.losses {
		assert.InEpsilon(t, l, stored.losses[i], 2e-3)
	}
	assert.NotEqual(t, exact.hash, stored.hash, "nothing was rounded")
}
