package decode

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
	"github.com/lorafuse/lorafuse/dev/bench/checkpoint"
	"github.com/lorafuse/lorafuse/dev/bench/program"
	"github.com/lorafuse/lorafuse/internal/generate"
)

func small(t *testing.T) Options {
	return Options{
		Turns: bench.Turns{Runs: 2}, Threads: 1, Sizes: []string{"tiny"}, Contexts: []int{4, 12}, Tokens: 3, Prompt: 16, Rank: 4, Dir: t.TempDir(),
	}
}

func TestRun(t *testing.T) {
	o := small(t)
	r, err := Run(t.Context(), o)
	require.NoError(t, err)
	groups := map[string]int{}
	for _, row := range r.Rows {
		groups[row.Group]++
		assert.Len(t, row.Seconds, 2, row.ID())
		assert.Positive(t, row.Figures().Min, row.ID())
		assert.Positive(t, row.Peak.Bytes, row.ID())
		if row.Program == ours {
			assert.Positive(t, row.Figures().Speed, row.ID())
		}
	}
	assert.Equal(t, map[string]int{tokenGroup: 5, contextGroup: 4, promptGroup: 3}, groups)
	s, err := checkpoint.ByName("tiny")
	require.NoError(t, err)
	token, adapter, loop, int8, nf4, prompt := r.Rows[0], r.Rows[1], r.Rows[2], r.Rows[3], r.Rows[4], r.Rows[5]
	assert.EqualValues(t, 2*s.LinearParams(), loop.Bytes)
	assert.EqualValues(t, 2*s.LinearParams()+2*4*2*2*16*(4+1), token.Bytes, "weights, and keys and values of 5 tokens")
	assert.EqualValues(t, 4*s.LoRAParams(4), adapter.Bytes-token.Bytes)
	linear := int64(s.LinearParams() - 320*64)
	assert.Equal(t, 2*linear-linear/64*68, token.Bytes-int8.Bytes, "but for the head")
	assert.Equal(t, 2*linear-linear/64*36, token.Bytes-nf4.Bytes)
	assert.InDelta(t, 2*(s.LinearParams()-320*64)*16+2*320*64+4*(16*17/2)*64*2, prompt.Flops, 0)
	left, err := os.ReadDir(o.Dir)
	require.NoError(t, err)
	assert.Empty(t, left)
}

// The read loop is that of all weights that a token needs.
func TestLinearNames(t *testing.T) {
	s, err := checkpoint.ByName("tiny")
	require.NoError(t, err)
	assert.Len(t, s.LinearNames(), 2*7+1)
}

// A sample runs the model for as many tokens as it counts.
func TestSamplers(t *testing.T) {
	m, err := program.Open(backend.CPU, 1)
	require.NoError(t, err)
	m.Quick = true
	defer func() { require.NoError(t, m.Close()) }()
	shape, err := checkpoint.ByName("tiny")
	require.NoError(t, err)
	s := &suite{Options: small(t), machine: m, shape: shape, dir: t.TempDir()}
	const before, tokens = 6, 4
	task := bench.Task{Row: s.row(tokenGroup, ours, "x"), Begin: func(ctx context.Context) (bench.Sampler, error) {
		one, err := s.engine(ctx, merged)
		require.NoError(t, err)
		again, err := s.engine(ctx, merged)
		require.NoError(t, err)
		assert.Same(t, one, again, "rows share a generator")
		other, err := s.engine(ctx, adapted)
		require.NoError(t, err)
		assert.NotSame(t, one, other)

		prompt := s.prompt(before)
		long, err := one.generator.Generate(ctx, prompt, generate.GenerateOptions{MaxNewTokens: 2 * tokens, IgnoreEOS: true}, nil)
		require.NoError(t, err)
		one.generator.Reset()
		b := &behind{one, prompt, tokens}
		_, err = b.Sample(ctx)
		require.NoError(t, err)
		after, err := one.generator.Generate(ctx, append(prompt, long.IDs...), generate.GenerateOptions{MaxNewTokens: 1, IgnoreEOS: true}, nil)
		require.NoError(t, err)
		assert.Equal(t, before+tokens, after.CachedTokens, "what the sample has run through")

		r := &reading{one, s.prompt(40)}
		for range 2 {
			_, err = r.Sample(ctx)
			require.NoError(t, err)
		}
		after, err = one.generator.Generate(ctx, s.prompt(41), generate.GenerateOptions{MaxNewTokens: 1, IgnoreEOS: true}, nil)
		require.NoError(t, err)
		assert.Equal(t, 40, after.CachedTokens)
		return b, nil
	}}
	require.NoError(t, s.run(t.Context(), []bench.Task{task}, &bench.Report{}))
	assert.Equal(t, []int32{5, 12, 19}, s.prompt(3))
}

// fake is a Python that answers as the peers do.
func fake(t *testing.T) string {
	if _, err := os.Stat("/bin/sh"); err != nil {
		t.Skip("no shell")
	}
	path := filepath.Join(t.TempDir(), "python")
	require.NoError(t, os.WriteFile(path, []byte("#!/bin/sh\nwhile read -r line; do echo '{\"seconds\": 25}'; done\n"), 0o755))
	return path
}

func TestPeers(t *testing.T) {
	o := small(t)
	o.Runs, o.Python, o.LlamaPython = 1, fake(t), fake(t)
	r, err := Run(t.Context(), o)
	require.NoError(t, err)
	others := map[string]int{}
	for _, row := range r.Rows {
		assert.Empty(t, row.Failure, row.ID())
		if row.Program != ours && row.Program != memory {
			others[row.Program+" "+row.Name]++
			assert.Equal(t, []float64{25}, row.Seconds)
			assert.Zero(t, row.Bytes)
		}
	}
	assert.Equal(t, map[string]int{
		"llama.cpp bf16": 2, "llama.cpp q8_0": 1, "transformers merged, bf16": 2, "transformers adapter r=4, not merged, bf16": 1,
	}, others)
}

func TestOnly(t *testing.T) {
	o := small(t)
	o.Only = regexp.MustCompile("reading the weights")
	r, err := Run(t.Context(), o)
	require.NoError(t, err)
	assert.Len(t, r.Rows, 1)
}

func TestInterrupted(t *testing.T) {
	o := small(t)
	ctx, cancel := context.WithCancel(t.Context())
	o.Progress = func(done, _ int) {
		if done == 4 {
			cancel()
		}
	}
	r, err := Run(ctx, o)
	require.ErrorIs(t, err, context.Canceled)
	assert.NotEmpty(t, r.Rows)
	left, err := os.ReadDir(o.Dir)
	require.NoError(t, err)
	assert.Empty(t, left)
}

func TestBadOptions(t *testing.T) {
	for says, change := range map[string]func(*Options){
		"found 0 runs":                         func(o *Options) { o.Runs = 0 },
		"found tokens of a sample of 0":        func(o *Options) { o.Tokens = 0 },
		"found tokens of a prompt of -1":       func(o *Options) { o.Prompt = -1 },
		"found a rank of 0":                    func(o *Options) { o.Rank = 0 },
		"found threads of -1":                  func(o *Options) { o.Threads = -1 },
		`found size "tyni"`:                    func(o *Options) { o.Sizes = []string{"tyni"} },
		"0 sizes of models and 2 contexts":     func(o *Options) { o.Sizes = nil },
		"1 sizes of models and 0 contexts":     func(o *Options) { o.Contexts = nil },
		"a context of 4 behind one of 8":       func(o *Options) { o.Contexts = []int{8, 4} },
		"a context of 0 behind one of 0":       func(o *Options) { o.Contexts = []int{0, 4} },
		"texts of 9003 tokens, the model tiny": func(o *Options) { o.Contexts = []int{9000} },
		`no row matches "x$"`:                  func(o *Options) { o.Only = regexp.MustCompile("x$") },
	} {
		o := small(t)
		change(&o)
		_, err := Run(t.Context(), o)
		assert.ErrorIs(t, err, bench.ErrOptions, says)
		assert.ErrorContains(t, err, says)
	}
	o := small(t)
	o.Backend = "tpu"
	_, err := Run(t.Context(), o)
	assert.ErrorIs(t, err, backend.ErrUnavailable)
	o = small(t)
	o.Dir = filepath.Join(o.Dir, "missing")
	_, err = Run(t.Context(), o)
	assert.ErrorIs(t, err, os.ErrNotExist)
}
