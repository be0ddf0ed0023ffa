package batching_test

import (
	"context"
	"fmt"
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
