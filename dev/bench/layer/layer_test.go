package layer

import (
	"context"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/backend"
	_ "github.com/lorafuse/lorafuse/backend/cpu"
	"github.com/lorafuse/lorafuse/dev/bench"
	"github.com/lorafuse/lorafuse/dev/bench/program"
	"github.com/lorafuse/lorafuse/internal/ir"
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
		assert.Positive(t, row.Figures().Min, row.ID())
	}
	return r
}

func TestOverheads(t *testing.T) {
	r := run(t, small("m=32 k=32 n=32"))
	assert.Len(t, r.Rows, 14, "the layer alone, and three ranks in two ways, at two precisions")
	assert.Equal(t, "layer", r.Title)
	assert.Equal(t, 1, r.Environment.Threads)
	flops := map[string]float64{}
	for _, row := range r.Rows {
		flops[row.Name] = row.Flops
		assert.Positive(t, row.Peak.Flops)
	}
	const m, k, n = 32, 32, 32
	assert.InDelta(t, 4*m*k*n, flops["frozen layer alone"], 0)
	assert.InDelta(t, 4*m*k*n+6*m*16*(k+n), flops["LoRA r=16"], 0)
}

// A program is what its name says: the frozen layer is a product forward and one for dx.
func TestPrograms(t *testing.T) {
	dev, err := backend.Open(backend.CPU, backend.Options{Threads: 1})
	require.NoError(t, err)
	defer func() { require.NoError(t, dev.Close()) }()
	launches := func(s program.Spec) string {
		p, err := program.New(t.Context(), dev, s)
		require.NoError(t, err)
		defer func() { require.NoError(t, p.Close()) }()
		return strings.Trim(fmt.Sprint(p.Launches()), "[]")
	}
	z := size{4, 8, 8, 2}
	assert.Equal(t, "Gemm Gemm", launches(layer(size{4, 8, 8, 0}, 0)))
	assert.Equal(t, 6, strings.Count(launches(layer(z, 0)), "Gemm"), "y, h, dh, dx, dA, dB")
	assert.Equal(t, 6, len(strings.Fields(launches(layer(z, 0)))))
	assert.Contains(t, launches(layer(z, 0.1)), ir.LoRADown.String())
}

func TestBadOptions(t *testing.T) {
	for says, change := range map[string]func(*Options){
		"found 0 runs":               func(o *Options) { o.Runs = 0 },
		"a divisor of sizes of -1":   func(o *Options) { o.Shrink = -1 },
		"found -2 threads":           func(o *Options) { o.Threads = -2 },
		`no row matches "nothing$"`:  func(o *Options) { o.Only = regexp.MustCompile("nothing$") },
		`no row matches "^Other.*x"`: func(o *Options) { o.Only = regexp.MustCompile("^Other.*x") },
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
	o := small("")
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
