package batching_test

import (
	"context"
	"errors"
	"math"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/dev/testdevice"
	"github.com/lorafuse/lorafuse/internal/generate"
	"github.com/lorafuse/lorafuse/internal/serve/batching"
	"github.com/lorafuse/lorafuse/lora"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var adapters = map[string]string{"lora": "../../../testdata/lm/llama/adapters/lora", "dora": "../../../testdata/lm/llama/adapters/dora"}

// TestLease: requests that name a version by a lease meet that one, whatever its name
// has come to stand for, and leave the lease to who has it.
func TestLease(t *testing.T) {
	b := newBench(t, llama, adapters, batching.Options{})
	_, err := b.Adapters().Load(ctx, "name", adapters["lora"])
	require.NoError(t, err)
	lease, err := b.Adapters().Acquire(ctx, "name")
	require.NoError(t, err)
	r := greedy("lora", prompt(b.m, 1, 5), 6)
	want := b.expected(r)
	r.Adapter, r.Lease = "name", lease
	for range 2 {
		got, _, err := collect(b.Engine, r)
		require.NoError(t, err)
		require.Equal(t, want, got[0])
		_, err = b.Adapters().Load(ctx, "name", adapters["dora"])
		require.NoError(t, err)
	}
	require.NotNil(t, lease.Version().State())
	lease.Release()
	_, _, err = collect(b.Engine, r)
	require.ErrorContains(t, err, "the lease is released")
}

// TestPrefix: what was read of a prompt is not read again, by requests of the same
// adapter and salt alone, and answers are the same. An adapter is its bytes, not its name.
func TestPrefix(t *testing.T) {
	b := newBench(t, llama, adapters, batching.Options{PageRows: 4})
	_, err := b.Adapters().Load(ctx, "again", adapters["lora"])
	require.NoError(t, err)
	ask := func(r batching.Request, cached int) {
		t.Helper()
		want := r
		if r.Adapter == "again" {
			want.Adapter = "lora"
		}
		got, times, err := collect(b.Engine, r)
		require.NoError(t, err)
		require.Equal(t, b.expected(want), got[0])
		require.Equal(t, cached, times.Cached)
		require.Positive(t, times.Prefill)
	}
	p := prompt(b.m, 1, 21)
	ask(greedy("lora", p, 4), 0)
	ask(greedy("lora", p, 4), 20)
	ask(greedy("again", p, 4), 20)
	ask(greedy("dora", p, 4), 0)
	ask(greedy("", p, 4), 0)
	ask(greedy("lora", append(slices.Clone(p[:10]), 7, 7, 7), 4), 8)
	salted := greedy("lora", p, 4)
	salted.Salt = "someone"
	ask(salted, 0)
	ask(salted, 20)

	// The name comes to stand for other bytes.
	_, err = b.Adapters().Load(ctx, "again", adapters["dora"])
	require.NoError(t, err)
	r := greedy("again", p, 4)
	got, times, err := collect(b.Engine, r)
	require.NoError(t, err)
	require.Equal(t, 20, times.Cached, "which were read with dora")
	require.Equal(t, b.expected(greedy("dora", p, 4)), got[0])
}

// TestAnswers: answers to one prompt, more than texts may run, are each what they are
// alone, and the prompt is read once.
func TestAnswers(t *testing.T) {
	b := newBench(t, llama, adapters, batching.Options{PageRows: 4, MaxTexts: 3, CacheTokens: 80, MaxLength: 40})
	r := greedy("lora", prompt(b.m, 2, 11), 9)
	option := r.Answers[0]
	r.Answers = nil
	for i := range 7 {
		option.Sampler.Seed, option.Sampler.Temperature, option.MaxNewTokens = uint64(i), 1, 1+i
		r.Answers = append(r.Answers, option)
	}
	got, _, err := collect(b.Engine, r)
	require.NoError(t, err)
	for i, one := range r.Answers {
		require.Equal(t, b.expected(batching.Request{Prompt: r.Prompt, Adapter: "lora", Answers: []generate.GenerateOptions{one}}), got[i])
	}
	require.Positive(t, b.Stats().Pages.Copied, "the last page of the prompt was shared")
	require.Zero(t, b.Stats().Pages.Used)

	var read atomic.Int64
	b = newBench(t, llama, nil, batching.Options{OnStep: func(s batching.Step) { read.Add(int64(s.Tokens)) }})
	_, _, err = collect(b.Engine, batching.Request{Prompt: prompt(b.m, 3, 12), Answers: r.Answers[:3]})
	require.NoError(t, err)
	b.Close()
	require.EqualValues(t, 12+0+1+2, read.Load(), "the prompt, and what stands before the second and third tokens")
}

// TestPromptLogprobs: tokens of the prompt have the log-probabilities that the model gives
// them, whatever is cached, and whatever is read beside them.
func TestPromptLogprobs(t *testing.T) {
	b := newBench(t, llama, adapters, batching.Options{PageRows: 4, MaxTexts: 2, MaxBatchTokens: 64})
	scorer, err := generate.NewScorer(b.dev, b.m, nil, 128)
	require.NoError(t, err)
	defer scorer.Close()
	for _, n := range []int{1, 5, 90} {
		r := greedy("lora", prompt(b.m, 4, n), 3)
		want := b.ofPrompt(scorer, r)
		for range 2 {
			_, _, err = collect(b.Engine, r)
			require.NoError(t, err)
			r.PromptLogprobs = true
			var got [][]generate.Logprobs
			var ids []int32
			for token, err := range b.Submit(ctx, r) {
				require.NoError(t, err)
				got, ids = append(got, token.Prompt), append(ids, token.ID)
			}
			require.Equal(t, [][]generate.Logprobs{want, nil, nil}, got)
			require.Equal(t, b.expected(r).IDs, ids)
		}
	}
}

// TestRefusals: what cannot be answered is an error that says why, and others go on.
func TestRefusals(t *testing.T) {
	b := newBench(t, llama, adapters, batching.Options{MaxLength: 20})
	fail := func(r batching.Request) error {
		t.Helper()
		n := 0
		var last error
		for token, err := range b.Submit(ctx, r) {
			require.Zero(t, token)
			n, last = n+1, err
		}
		require.Equal(t, 1, n)
		return last
	}
	for want, r := range map[string]batching.Request{
		"batching: wrong request: no answers are asked for, expected one or more":                                                 {Prompt: []int32{1}},
		"batching: wrong request: generate: bad token: the prompt has none; begin with the token that begins a text":              greedy("", nil, 1),
		"batching: wrong request: generate: too many tokens: the prompt has 20, and prompt and answer can have 20":                greedy("", prompt(b.m, 1, 20), 1),
		"batching: wrong request: generate: bad token: id 512 at position 1, the model's vocabulary has 512":                      greedy("", []int32{1, 512}, 1),
		"batching: wrong request: generate: bad option: -1 new tokens, expected 1 or more, or 0 for as many as there is room for": greedy("", []int32{1}, -1),
	} {
		err := fail(r)
		require.ErrorIs(t, err, batching.ErrRequest)
		require.EqualError(t, err, want)
	}
	err := fail(greedy("lorra", []int32{1}, 1))
	require.ErrorIs(t, err, lora.ErrNotFound)
	require.ErrorContains(t, err, `did you mean "lora"`)
	require.ErrorIs(t, fail(greedy("../x", []int32{1}, 1)), lora.ErrName)
	ended, cancel := context.WithCancel(ctx)
	cancel()
	for _, err := range b.Submit(ended, greedy("", []int32{1}, 1)) {
		require.ErrorIs(t, err, context.Canceled)
	}
	r := greedy("lora", []int32{1, 2}, 0)
	got, _, err := collect(b.Engine, r)
	require.NoError(t, err)
	require.Equal(t, generate.FinishLength, got[0].Finish)
	require.Equal(t, b.expected(r), got[0])
}

func TestOptions(t *testing.T) {
	dev, m := testdevice.Open(t, backend.Options{}), open(t, llama)
	for want, o := range map[string]batching.Options{
		"batching: bad option: max texts: found -1, expected 0 or more":                                    {MaxTexts: -1},
		"batching: bad option: page rows: found 3, expected a power of two":                                {PageRows: 3},
		"batching: too many tokens: a length of 129, the model takes 128 (max_position_embeddings)":        {MaxLength: 129},
		"batching: bad option: 3 tokens of a run for 4 texts, expected as many or more":                    {MaxTexts: 4, MaxBatchTokens: 3},
		"batching: bad option: a cache of 30 tokens for texts of 20, expected as many or more":             {MaxLength: 20, CacheTokens: 30},
		"batching: bad option: a cache of 8 tokens and pages of 16, expected one page or more":             {CacheTokens: 8},
		"batching: bad option: train share: found 1, expected more than 0 and less than 1, or 0 for 0.5":   {TrainShare: 1},
		"batching: bad option: train share: found NaN, expected more than 0 and less than 1, or 0 for 0.5": {TrainShare: math.NaN()},
	} {
		_, err := batching.New(ctx, dev, m, o)
		require.EqualError(t, err, want)
	}
	_, err := batching.New(ctx, dev, m, batching.Options{Adapters: lora.RegistryOptions{Root: "nowhere"}})
	require.ErrorContains(t, err, "root of adapters")
	e, err := batching.New(ctx, dev, m, batching.Options{CacheTokens: 70})
	require.NoError(t, err)
	defer e.Close()
	require.Equal(t, 64, e.MaxLength(), "as long as the whole pages of the cache")
	require.Equal(t, 4, e.Stats().Pages.Pages)
}

// TestDrain: what is under way ends, and nothing new begins.
func TestDrain(t *testing.T) {
	b := newBench(t, llama, adapters, batching.Options{})
	b.gate.Lock()
	r := greedy("lora", prompt(b.m, 1, 5), 6)
	done := make(chan []answer)
	go func() {
		got, _, err := collect(b.Engine, r)
		assert.NoError(t, err)
		done <- got
	}()
	b.await(1)
	short, cancel := context.WithCancel(ctx)
	cancel()
	require.ErrorIs(t, b.Drain(short), context.Canceled)
	_, _, err := collect(b.Engine, r)
	require.ErrorIs(t, err, batching.ErrClosed)
	b.gate.Unlock()
	require.NoError(t, b.Drain(ctx))
	require.Equal(t, b.expected(r), (<-done)[0])
	require.NoError(t, b.Drain(ctx))
}

// TestClose: what is under way and what waits ends with ErrClosed, and so does all that
// comes later.
func TestClose(t *testing.T) {
	steps, closing := make(chan struct{}, 1), make(chan struct{})
	b := newBench(t, llama, adapters, batching.Options{MaxTexts: 1, OnStep: func(batching.Step) {
		select {
		case steps <- struct{}{}:
		default:
		}
		<-closing // whatever time the test takes
	}})
	failed := make(chan error)
	for _, adapter := range []string{"lora", "", "dora"} {
		go func() {
			_, _, err := collect(b.Engine, greedy(adapter, prompt(b.m, 1, 5), 120))
			failed <- err
		}()
	}
	<-steps
	go func() {
		for !b.Closing() {
			time.Sleep(100 * time.Microsecond)
		}
		close(closing)
	}()
	b.Close()
	for range 3 {
		require.ErrorIs(t, <-failed, batching.ErrClosed)
	}
	_, _, err := collect(b.Engine, greedy("", []int32{1}, 1))
	require.ErrorIs(t, err, batching.ErrClosed)
	_, err = b.Adapters().Load(ctx, "x", adapters["lora"])
	require.ErrorIs(t, err, lora.ErrClosed)
	b.Close()
}

// decoder fails, or panics, at a token.
type decoder struct {
	at   int
	with any
}

func (d *decoder) Push(int32) (string, error) {
	if d.at--; d.at >= 0 {
		return "x", nil
	}
	if err, ok := d.with.(error); ok {
		return "", err
	}
	panic(d.with)
}

func (d *decoder) Flush() string { return "" }

// TestDecoderFails: a decoder that fails or panics ends its own request alone.
func TestDecoderFails(t *testing.T) {
	b := newBench(t, llama, adapters, batching.Options{})
	why := errors.New("why")
	for _, with := range []any{why, "fell"} {
		good := make(chan []answer)
		r := greedy("lora", prompt(b.m, 1, 5), 20)
		go func() {
			got, _, err := collect(b.Engine, r)
			assert.NoError(t, err)
			good <- got
		}()
		bad := greedy("lora", r.Prompt, 20)
		bad.Answers = append(bad.Answers, bad.Answers[0])
		bad.Answers[1].Decoder = &decoder{3, with}
		_, _, err := collect(b.Engine, bad)
		if with == why {
			require.ErrorIs(t, err, why)
		} else {
			require.ErrorIs(t, err, batching.ErrPanic)
			require.ErrorContains(t, err, "fell")
		}
		require.Equal(t, b.expected(r), (<-good)[0])
		require.Zero(t, b.Stats().Pages.Used)
	}
}
