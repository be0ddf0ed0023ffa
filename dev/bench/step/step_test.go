package step

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	_ "github.com/lorafuse/lorafuse/backend/cpu"
	"github.com/lorafuse/lorafuse/dev/bench"
	"github.com/lorafuse/lorafuse/dev/bench/checkpoint"
)

// TestMain lets this binary be the programs that Run starts.
func TestMain(m *testing.M) {
	if len(os.Args) < 3 || os.Args[1] != "as" {
		if len(os.Args) > 3 && os.Args[1] == "-c" { // a Python with the peer's script
			var o order
			if err := json.Unmarshal([]byte(os.Args[3]), &o); err != nil {
				panic(err)
			}
			a := answer{FirstStep: time.Now().Add(time.Minute).UnixNano(), PeakRSS: 1 << 40}
			for range o.Steps + warmUp {
				a.Seconds = append(a.Seconds, 1000)
			}
			if err := json.NewEncoder(os.Stdout).Encode(a); err != nil {
				panic(err)
			}
			os.Exit(0)
		}
		os.Exit(m.Run())
	}
	switch os.Args[2] {
	case "ours":
		if err := Measure(context.Background(), os.Stdout, os.Args[3]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	case "broken":
		fmt.Fprintln(os.Stderr, "some words\nthe last word")
		os.Exit(3)
	case "talker":
		fmt.Println("hello")
	case "idler":
		fmt.Println(`{"seconds": []}`)
	}
	os.Exit(0)
}

func as(part string) []string { return []string{os.Args[0], "as", part} }

func small(t *testing.T) Options {
	return Options{Turns: bench.Turns{Runs: 2}, Self: as("ours"), Threads: 1, Sizes: []string{"tiny"}, Rank: 4, Steps: 3, Dir: t.TempDir()}
}

func TestRun(t *testing.T) {
	o := small(t)
	r, err := Run(t.Context(), o)
	require.NoError(t, err)
	require.Len(t, r.Rows, 4)
	tiny, err := checkpoint.ByName("tiny")
	require.NoError(t, err)
	for _, row := range r.Rows[:2] {
		assert.Len(t, row.Seconds, 2)
		assert.Greater(t, row.PeakRSS, int64(1<<20))
		assert.InDelta(t, 32, row.Tokens, 0)
		assert.InDelta(t, float64(4*tiny.LinearParams()*32+12*2*(16*17/2)*64*2), row.Flops, 0)
		assert.Positive(t, row.Peak.Flops)
		assert.Positive(t, row.Figures().Speed)
	}
	for _, row := range r.Rows[2:] {
		assert.Len(t, row.Seconds, 2)
		assert.Contains(t, row.Group, "first step")
		assert.Greater(t, row.Figures().Min, 1e-3, "a process does not start in no time")
	}
	left, err := os.ReadDir(o.Dir)
	require.NoError(t, err)
	assert.Empty(t, left)
}

// A peer has rows of its own.
func TestPeer(t *testing.T) {
	o := small(t)
	o.Runs, o.Python = 1, os.Args[0]
	r, err := Run(t.Context(), o)
	require.NoError(t, err)
	require.Len(t, r.Rows, 8)
	assert.Equal(t, []float64{1000}, r.Rows[2].Seconds)
	assert.Equal(t, []string{ours, ours, torch, torch, ours, ours, torch, torch}, programs(r.Rows))
}

func programs(rows []*bench.Row) (names []string) {
	for _, row := range rows {
		names = append(names, row.Program)
	}
	return names
}

func TestQuantized(t *testing.T) {
	o := small(t)
	o.Runs, o.Quantize, o.Only = 1, []string{"nf4", "int8"}, regexp.MustCompile("f32")
	r, err := Run(t.Context(), o)
	require.NoError(t, err)
	var names []string
	for _, row := range r.Rows {
		names = append(names, row.Name)
		assert.Len(t, row.Seconds, 1)
	}
	assert.Equal(t, []string{"f32", "f32, nf4 weights", "f32, int8 weights", "f32", "f32, nf4 weights", "f32, int8 weights"}, names)
	assert.ErrorContains(t, Measure(t.Context(), nil, fmt.Sprintf(`{"model": %q, "rows": "x.safetensors", "out": "x", "batch": 1, "length": 4, "rank": 2, "precision": "f32", "quantize": "int9"}`, o.Dir)), "int9")
}

func TestOnly(t *testing.T) {
	o := small(t)
	o.Runs, o.Only = 1, regexp.MustCompile("bf16")
	r, err := Run(t.Context(), o)
	require.NoError(t, err)
	require.Len(t, r.Rows, 2)
	assert.Equal(t, "bf16", r.Rows[0].Name)
	assert.Equal(t, "bf16", r.Rows[1].Name)
}

// The operations of a step are those of the weights and of attention.
func TestFlops(t *testing.T) {
	wide, err := checkpoint.ByName("wide")
	require.NoError(t, err)
	attention := 12 * float64(512*513/2) * 2048 * 2
	assert.InDelta(t, 4*153.6e6*512+attention, flops(wide, 1, 512), 1e8)
}

func TestFailures(t *testing.T) {
	for part, says := range map[string]string{"broken": "exit status 3: the last word", "talker": "invalid character", "idler": "other steps"} {
		o := small(t)
		o.Self = as(part)
		r, err := Run(t.Context(), o)
		require.ErrorContains(t, err, says)
		assert.Empty(t, r.Rows)
	}
	o := small(t)
	o.Runs, o.Python = 1, filepath.Join(t.TempDir(), "python")
	r, err := Run(t.Context(), o)
	require.NoError(t, err)
	assert.Contains(t, r.Rows[2].Failure, "no such file")
	assert.ErrorContains(t, Measure(t.Context(), nil, "{"), "the order")
	assert.Error(t, Measure(t.Context(), nil, fmt.Sprintf(`{"model": %q, "rows": "none.safetensors", "out": "x", "batch": 1, "length": 4, "rank": 2, "precision": "f32"}`, filepath.Join(t.TempDir(), "nowhere"))))
}

func TestInterrupted(t *testing.T) {
	o := small(t)
	ctx, cancel := context.WithCancel(t.Context())
	o.Progress = func(done, _ int) {
		if done == 1 {
			cancel()
		}
	}
	r, err := Run(ctx, o)
	require.ErrorIs(t, err, context.Canceled)
	assert.Len(t, r.Rows, 2, "a step and its start")
}

func TestBadOptions(t *testing.T) {
	for says, change := range map[string]func(*Options){
		"found 0 runs":            func(o *Options) { o.Runs = 0 },
		"found steps of 0":        func(o *Options) { o.Steps = 0 },
		"found a rank of 0":       func(o *Options) { o.Rank = 0 },
		"found rows of a step of": func(o *Options) { o.Batch = -1 },
		"tokens of a row of -1":   func(o *Options) { o.Length = -1 },
		"found threads of -1":     func(o *Options) { o.Threads = -1 },
		`no row matches "x$"`:     func(o *Options) { o.Only = regexp.MustCompile("x$") },
		`found size "tny"`:        func(o *Options) { o.Sizes = []string{"tny"} },
		`found "int9"`:            func(o *Options) { o.Quantize = []string{"int9"} },
		`quantization "none"`:     func(o *Options) { o.Quantize = []string{"none"} },
		"no size of a model":      func(o *Options) { o.Sizes = nil },
	} {
		o := small(t)
		change(&o)
		_, err := Run(t.Context(), o)
		assert.ErrorIs(t, err, bench.ErrOptions, says)
		assert.ErrorContains(t, err, says)
	}
	o := small(t)
	o.Dir = filepath.Join(o.Dir, "missing")
	_, err := Run(t.Context(), o)
	assert.ErrorIs(t, err, os.ErrNotExist)
}
