package kernels

import (
	"context"
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/backend"
	_ "github.com/lorafuse/lorafuse/backend/cpu"
	"github.com/lorafuse/lorafuse/dev/bench"
)

// small are options that take little time.
func small(only string) Options {
	return Options{Turns: bench.Turns{Runs: 2, Only: regexp.MustCompile(only)}, Shrink: 64, Threads: 1}
}

func run(t *testing.T, o Options) *bench.Report {
	t.Helper()
	r, err := Run(t.Context(), o)
	require.NoError(t, err)
	for _, row := range r.Rows {
		assert.Empty(t, row.Failure, row.ID())
		assert.Len(t, row.Seconds, 2, row.ID())
		f := row.Figures()
		assert.Positive(t, f.Min, row.ID())
		assert.Equal(t, row.Program == ours, f.Rate > 0, row.ID())
		assert.Positive(t, f.GFlops, row.ID())
	}
	return r
}

// Every row of the suite can be measured.
func TestRun(t *testing.T) {
	r := run(t, small(""))
	groups := map[string]int{}
	for _, row := range r.Rows {
		groups[row.Group]++
		assert.Positive(t, row.Peak.Flops, row.ID())
	}
	for group, least := range map[string]int{
		"x·Wᵀ": 25, "dy·W": 15, "LoRA x·Aᵀ": 2, "LoRA h·Bᵀ": 2, "LoRA dA = dhᵀ·x": 2, "LoRA dB = dyᵀ·h": 2, "Attention": 9,
	} {
		assert.GreaterOrEqual(t, groups[group], least, group)
		delete(groups, group)
	}
	assert.Empty(t, groups)
	assert.Equal(t, "kernels", r.Title)
}

// A row counts the work of its product, and no more.
func TestCosts(t *testing.T) {
	o := small(`^(x·Wᵀ: .*m=8 k=32 n=32$|Attention: .* forward, f32, 4 ×)`)
	r := run(t, o)
	require.Len(t, r.Rows, 6)
	for i, weights := range []int64{4 * 32 * 32, 2 * 32 * 32, 2 * 32 * 32, (64 + 4) * 32 * 32 / 64, (32 + 4) * 32 * 32 / 64} {
		assert.InDelta(t, 2*8*32*32, r.Rows[i].Flops, 0)
		assert.Equal(t, 4*2*8*32+weights, r.Rows[i].Bytes)
	}
	attention := r.Rows[5]
	assert.InDelta(t, 4*(4*4*5/2)*8*64, attention.Flops, 0, "4 texts of 4 tokens that see themselves and what was before")
}

func TestPeers(t *testing.T) {
	if _, err := os.Stat("/bin/sh"); err != nil {
		t.Skip("no shell")
	}
	path := filepath.Join(t.TempDir(), "python")
	require.NoError(t, os.WriteFile(path, []byte("#!/bin/sh\nwhile read -r line; do echo '{\"seconds\": 0.25}'; done\n"), 0o755))
	o := small(`^x·Wᵀ: .*m=8 k=32 n=32$|^Attention: .*ward, bf16, 1 ×`)
	o.Python = path
	r := run(t, o)
	assert.Len(t, r.Rows, 5+3+2+2*2, "ours, torch, and numpy without bf16 or attention")
	require.NoError(t, os.WriteFile(path, []byte("#!/bin/sh\necho no torch here >&2\nexit 1\n"), 0o755))
	r, err := Run(t.Context(), o)
	require.NoError(t, err, "a peer that fails says so in its rows")
	assert.Contains(t, r.Rows[1].Failure, "no torch here")
	assert.Empty(t, r.Rows[0].Failure)
}

func TestBadOptions(t *testing.T) {
	for says, change := range map[string]func(*Options){
		"found 0 runs":              func(o *Options) { o.Runs = 0 },
		"a divisor of sizes of -1":  func(o *Options) { o.Shrink = -1 },
		"found -2 threads":          func(o *Options) { o.Threads = -2 },
		`no row matches "nothing$"`: func(o *Options) { o.Only = regexp.MustCompile("nothing$") },
	} {
		o := small("")
		change(&o)
		_, err := Run(t.Context(), o)
		assert.ErrorIs(t, err, bench.ErrOptions, says)
		assert.ErrorContains(t, err, says)
	}
	o := small("")
	o.Backend = "tpu"
	_, err := Run(t.Context(), o)
	assert.ErrorIs(t, err, backend.ErrUnavailable)
}

func TestInterrupted(t *testing.T) {
	o := small("^LoRA")
	ctx, cancel := context.WithCancel(t.Context())
	o.Progress = func(done, _ int) {
		if done == 2 {
			cancel()
		}
	}
	r, err := Run(ctx, o)
	require.ErrorIs(t, err, context.Canceled)
	assert.NotEmpty(t, r.Rows, "what was measured is there")
}

// The shapes of models are those of both passes, shrunk once, in bf16 alone.
func TestModels(t *testing.T) {
	o := small("")
	o.Models, o.Shrink, o.Once = true, 512, true
	r := run(t, o)
	inputs := map[string]int{}
	for _, row := range r.Rows {
		if row.Group == "Attention" {
			inputs[row.Input]++
		} else {
			assert.Equal(t, "bf16", row.Name)
		}
	}
	assert.Equal(t, map[string]int{"4 × 4 tokens, 32 heads of 128": 2, "1 × 16 tokens, 32 heads of 128": 2, "1 × 9 tokens, 24 heads of 128, no mask": 2, "behind 7, 32 heads of 128": 1, "behind 16, 32 heads of 128": 1}, inputs)
}
