package batching_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/backend/telemetry"
	"github.com/lorafuse/lorafuse/dev/bench/checkpoint"
	"github.com/lorafuse/lorafuse/dev/testdevice"
	"github.com/lorafuse/lorafuse/internal/generate"
	"github.com/lorafuse/lorafuse/internal/serve/batching"
	"github.com/lorafuse/lorafuse/lora"
	"github.com/lorafuse/lorafuse/tensor"
)

// BenchmarkEngine prints the tokens of a second of one processor, for one stream and for
// eight, with the model alone, one adapter and one for each stream, in f32 and in bf16, and
// what one stream gets of the speed of a generator that does nothing else.
func BenchmarkEngine(b *testing.B) {
	shape := checkpoint.Shape{Name: "bench", Hidden: 1024, Layers: 6, Inter: 4096, Heads: 16, KVHeads: 4, Vocab: 16384, Positions: 2048}
	dir := b.TempDir()
	require.NoError(b, shape.Write(dir))
	dev, m := testdevice.Open(b, backend.Options{Threads: 1}), open(b, dir)
	e, err := batching.New(ctx, dev, m, batching.Options{})
	require.NoError(b, err)
	defer e.Close()
	var dirs []string
	for i := range 8 {
		dirs = append(dirs, built(b, m, `"target_modules":"all-linear","r":16`, uint64(i)))
		_, err := e.Adapters().Load(ctx, fmt.Sprint("f32-", i), dirs[i])
		require.NoError(b, err)
		narrow, _ := narrowed(b, dirs[i], tensor.BF16)
		_, err = e.Adapters().Load(ctx, fmt.Sprint("bf16-", i), narrow)
		require.NoError(b, err)
	}
	const tokens = 32
	meter := telemetry.Open()
	defer meter.Close()
	processor := func() float64 { return meter.Read().Process.CPUSeconds } // machines are shared
	run := func(streams, adapters int, as string) float64 {                // tokens of a second
		var work sync.WaitGroup
		start := processor()
		for i := range streams {
			work.Go(func() {
				r := greedy("", prompt(m, uint64(i), 16), tokens)
				r.Salt = fmt.Sprint(time.Now()) // nothing is cached
				if adapters > 0 {
					r.Adapter = fmt.Sprint(as, "-", i%adapters)
				}
				r.Answers[0].Logprobs, r.Answers[0].TopLogprobs = false, 0
				for _, err := range e.Submit(ctx, r) {
					if err != nil {
						panic(err)
					}
				}
			})
		}
		work.Wait()
		return float64(streams*tokens) / (processor() - start)
	}
	for _, c := range []struct {
		streams, adapters int
		as                string
	}{{1, 0, ""}, {1, 1, "f32"}, {8, 0, ""}, {8, 1, "f32"}, {8, 8, "f32"}, {8, 1, "bf16"}, {8, 8, "bf16"}} {
		b.Run(fmt.Sprintf("streams %d, adapters %d %s", c.streams, c.adapters, c.as), func(b *testing.B) {
			var alone *generate.Generator
			if c.streams == 1 {
				var s *lora.State
				if c.adapters > 0 {
					s, err = lora.LoadState(dirs[0], m, m.Config.ModelType, m.Modules())
					require.NoError(b, err)
				}
				alone, err = generate.New(ctx, dev, m, s, generate.Options{})
				require.NoError(b, err)
				defer alone.Close()
			}
			run(c.streams, c.adapters, c.as)
			best, other := 0.0, 0.0
			for b.Loop() {
				best = max(best, run(c.streams, c.adapters, c.as))
				if alone != nil {
					alone.Reset()
					start := processor()
					_, err := alone.Generate(context.Background(), prompt(m, 0, 16), generate.GenerateOptions{MaxNewTokens: tokens, IgnoreEOS: true}, nil)
					require.NoError(b, err)
					other = max(other, tokens/(processor()-start))
				}
			}
			b.ReportMetric(best, "tokens/s")
			if alone != nil {
				b.ReportMetric(best/other, "×generator")
			}
		})
	}
}

// BenchmarkFirstToken prints the time from a request to its first token, next to four streams with
// one adapter, for adapters that are asked for the first time: of the ranks and modules of the others,
// and of ranks and modules that the server has not had. It prints the median of each, taken in turns.
func BenchmarkFirstToken(b *testing.B) {
	shape := checkpoint.Shape{Name: "bench", Hidden: 512, Layers: 12, Inter: 1536, Heads: 8, KVHeads: 4, Vocab: 4096, Positions: 2048}
	dir := b.TempDir()
	require.NoError(b, shape.Write(dir))
	m := open(b, dir)
	e, err := batching.New(ctx, testdevice.Open(b, backend.Options{Threads: 1}), m, batching.Options{})
	require.NoError(b, err)
	defer e.Close()
	load := func(name, config string, seed uint64) {
		_, err := e.Adapters().Load(ctx, name, built(b, m, config, seed))
		require.NoError(b, err)
	}
	load("busy", `"target_modules":["q_proj","v_proj"],"r":16`, 0)
	busy, stop := context.WithCancel(ctx)
	var work sync.WaitGroup
	defer work.Wait()
	defer stop()
	for i := range 4 {
		work.Go(func() {
			for busy.Err() == nil {
				for range e.Submit(busy, greedy("busy", prompt(m, uint64(i), 16), 64)) {
				}
			}
		})
	}
	first := func(name string) time.Duration {
		start := time.Now()
		for _, err := range e.Submit(ctx, greedy(name, prompt(m, 9, 16), 1)) {
			require.NoError(b, err)
		}
		return time.Since(start)
	}
	modules := []string{"q_proj", "k_proj", "v_proj", "o_proj", "up_proj", "down_proj"}
	var took [2][]time.Duration
	for i := 0; b.Loop(); i++ {
		known, other := fmt.Sprint("known", i), fmt.Sprint("other", i)
		load(known, `"target_modules":["q_proj","v_proj"],"r":16`, uint64(2*i+1))
		load(other, fmt.Sprintf(`"target_modules":["%s","%s"],"r":%d,"lora_alpha":%d`, modules[i%6], modules[(i+1+i/6%5)%6], 8<<(i%2*2), i+1), uint64(2*i+2))
		took[0], took[1] = append(took[0], first(known)), append(took[1], first(other))
	}
	for i := range took {
		slices.Sort(took[i])
	}
	middle := len(took[0]) / 2
	b.ReportMetric(float64(took[0][middle].Microseconds()), "known-µs")
	b.ReportMetric(float64(took[1][middle])/float64(took[0][middle]), "new/known")
}
