package batching_test

import (
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/dev/draws"
	"github.com/lorafuse/lorafuse/dev/testdevice"
	"github.com/lorafuse/lorafuse/internal/generate"
	"github.com/lorafuse/lorafuse/internal/generate/sample"
	"github.com/lorafuse/lorafuse/internal/serve/batching"
	"github.com/lorafuse/lorafuse/lora"
)

// TestAnyCompany: whatever the sizes of an engine, and whatever is asked for together,
// answers are those that each request gets alone, nobody waits for ever, and in the end
// all pages are free. This holds on the host, and on a device that works while the host
// prepares the next step, replays padded runs and selects candidates.
func TestAnyCompany(t *testing.T) {
	o := backend.Options{Threads: 1, BatchInvariant: true}
	dev := testdevice.Open(t, o)
	t.Run("host", func(t *testing.T) { testAnyCompany(t, dev, dev) })
	t.Run("remote", func(t *testing.T) { testAnyCompany(t, dev, testdevice.NewRemote(t, o)) })
}

// testAnyCompany compares engines on dev with a generator on alone.
func testAnyCompany(t *testing.T, alone, dev backend.Device) {
	const longest = 24
	oracle := benchOn(t, alone, open(t, smallLlama), nil, batching.Options{MaxLength: longest})
	oracle.dirs = casesOf(t, smallLlama)
	names := append(slices.Sorted(maps.Keys(oracle.dirs)), "")
	known := map[string]answer{}
	expected := func(r batching.Request, one generate.GenerateOptions) answer {
		key := fmt.Sprint(r.Adapter, r.Prompt, one)
		if _, ok := known[key]; !ok {
			known[key] = oracle.expected(batching.Request{Adapter: r.Adapter, Prompt: r.Prompt, Answers: []generate.GenerateOptions{one}})
		}
		return known[key]
	}
	scorer, err := generate.NewScorer(alone, oracle.m, nil, longest)
	require.NoError(t, err)
	defer scorer.Close()
	judged := map[string][]generate.Logprobs{}
	ofPrompt := func(r batching.Request) []generate.Logprobs {
		key := fmt.Sprint(r.Adapter, r.Prompt, r.Answers[0].TopLogprobs)
		if judged[key] == nil {
			judged[key] = oracle.ofPrompt(scorer, r)
		}
		return judged[key]
	}
	draws.Check(t, 20, func(t *rapid.T) {
		rows := rapid.SampledFrom([]int{1, 2, 4, 8}).Draw(t, "page rows")
		texts := rapid.IntRange(1, 6).Draw(t, "texts")
		e, err := batching.New(ctx, dev, oracle.m, batching.Options{
			MaxLength: longest, MaxTexts: texts, PageRows: rows,
			MaxBatchTokens: rapid.IntRange(texts, 30).Draw(t, "tokens of a run"),
			CacheTokens:    longest + rapid.IntRange(0, 60).Draw(t, "cache")/rows*rows,
			Adapters:       lora.RegistryOptions{MaxResident: rapid.IntRange(1, 4).Draw(t, "resident")},
		})
		require.NoError(t, err)
		defer e.Close()
		var work sync.WaitGroup
		for i := range rapid.IntRange(1, 12).Draw(t, "requests") {
			name := rapid.SampledFrom(names).Draw(t, "adapter")
			if name != "" {
				_, err := e.Adapters().Load(ctx, name, oracle.dirs[name])
				require.NoError(t, err)
			}
			r := greedy(name, prompt(oracle.m, rapid.Uint64Range(0, 1).Draw(t, "prompt"), rapid.IntRange(1, 14).Draw(t, "length")), 0)
			one := r.Answers[0]
			r.Answers = nil
			var want []answer
			for range rapid.SampledFrom([]int{1, 1, 1, 3, 8}).Draw(t, "answers") {
				one.MaxNewTokens = rapid.IntRange(1, 10).Draw(t, "new")
				if one.Logprobs = rapid.Bool().Draw(t, "logprobs"); !one.Logprobs {
					one.TopLogprobs = 0
				}
				one.IgnoreEOS = rapid.Bool().Draw(t, "ignore EOS")
				one.MinNewTokens = rapid.SampledFrom([]int{0, 0, 1}).Draw(t, "least")
				one.Sampler = sample.Sampler{
					Seed:             rapid.Uint64Range(0, 3).Draw(t, "seed"),
					Temperature:      rapid.SampledFrom([]float64{0, 0, 1, 0.1}).Draw(t, "temperature"),
					TopK:             rapid.SampledFrom([]int{0, 0, 3, 80}).Draw(t, "top k"),
					TopP:             rapid.SampledFrom([]float64{0, 0.3, 0.95}).Draw(t, "top p"),
					MinP:             rapid.SampledFrom([]float64{0, 0, 0.01}).Draw(t, "min p"),
					FrequencyPenalty: rapid.SampledFrom([]float64{0, 0, 0.5}).Draw(t, "penalty"),
				}
				r.Answers, want = append(r.Answers, one), append(want, expected(r, one))
			}
			r.PromptLogprobs = rapid.IntRange(0, 3).Draw(t, "prompt logprobs") == 0
			var said []generate.Logprobs
			if r.PromptLogprobs {
				said = ofPrompt(r)
			}
			leaves := rapid.IntRange(-6, 4).Draw(t, "leaves after")
			work.Go(func() {
				n, got := 0, make([]answer, len(want))
				for token, err := range e.Submit(ctx, r) {
					if !assert.NoError(t, err, "request %d", i) {
						return
					}
					if n++; n == leaves {
						return
					}
					a := &got[token.Answer]
					a.IDs, a.Said, a.Finish = append(a.IDs, token.ID), append(a.Said, token.Logprobs), token.Finish
					if len(a.IDs) == 1 && token.Answer == 0 {
						assert.Equal(t, said, token.Prompt)
					} else {
						assert.Empty(t, token.Prompt)
					}
				}
				assert.Equal(t, want, got, "request %d", i)
			})
		}
		work.Wait()
		s := e.Stats()
		require.Zero(t, s.Pages.Used)
		require.Empty(t, append(s.Running, s.Waiting...))
	})
}
