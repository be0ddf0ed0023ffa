package large

import (
	"os"
	"regexp"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/backend"
	_ "github.com/lorafuse/lorafuse/backend/cpu"
	"github.com/lorafuse/lorafuse/dev/bench"
	"github.com/lorafuse/lorafuse/dev/bench/checkpoint"
)

func small(t *testing.T, only string) Options {
	return Options{
		Turns: bench.Turns{Runs: 2, Only: regexp.MustCompile(only)}, Backend: backend.CPU, Size: "tiny", Rows: 2, Length: 16, Contexts: []int{8, 16}, Tokens: 100,
		Texts: []int{1, 4}, Adapters: 2, Rank: 4, Flux: checkpoint.Flux{Heads: 1, Text: 64, Pooled: 32}, Side: 64, Dir: t.TempDir(),
	}
}

// Every row can be measured, and leaves nothing behind.
func TestRun(t *testing.T) {
	o := small(t, "")
	r, err := Run(t.Context(), o)
	require.NoError(t, err)
	var names []string
	for _, row := range r.Rows {
		names = append(names, row.Group+": "+row.Name)
		assert.Len(t, row.Seconds, 2, row.ID())
		assert.Positive(t, row.Figures().Min, row.ID())
		assert.Positive(t, row.Figures().Speed, row.ID())
		assert.Positive(t, row.Peak.Flops, row.ID())
	}
	assert.Equal(t, []string{
		"Training step: bf16", "One token: bf16", "One token: bf16, adapter r=4", "One token: bf16", "One token: bf16, adapter r=4",
		"One step of texts that are served: 1 texts, 1 adapters r=4", "One step of texts that are served: 4 texts, 2 adapters r=4", "Training step of a double block of FLUX: bf16",
	}, names)
	left, err := os.ReadDir(o.Dir)
	require.NoError(t, err)
	assert.Empty(t, left)
}

// Peaks that were measured before are what rows are held against.
func TestPeaks(t *testing.T) {
	o := small(t, "^One token.*bf16, tiny.*8 tokens")
	o.Peaks = map[string]bench.Peak{"bf16": {Flops: 1e20, Bytes: 2e20}}
	r, err := Run(t.Context(), o)
	require.NoError(t, err)
	require.Len(t, r.Rows, 1)
	assert.Equal(t, o.Peaks["bf16"], r.Rows[0].Peak)
}

func TestBadOptions(t *testing.T) {
	for says, change := range map[string]func(*Options){
		`found size "tny"`:    func(o *Options) { o.Size = "tny" },
		"found adapters of 0": func(o *Options) { o.Adapters = 0 },
		"no context":          func(o *Options) { o.Contexts = nil },
		"found pixels of 8":   func(o *Options) { o.Side = 8 },
	} {
		o := small(t, "")
		change(&o)
		_, err := Run(t.Context(), o)
		require.ErrorIs(t, err, bench.ErrOptions)
		assert.ErrorContains(t, err, says)
	}
}
