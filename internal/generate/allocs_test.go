package generate_test

import (
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/dev/testdevice"
	"github.com/lorafuse/lorafuse/internal/generate"
	"github.com/lorafuse/lorafuse/internal/generate/sample"
)

// A token of an answer of known length allocates nothing but what its two copies do,
// up and down, with an adapter or without, chosen greedily or by chance. Text is another matter: what is shown
// are new strings.
func TestTokensAllocateNothing(t *testing.T) {
	dev, m := open(t, llama)
	for name, adapter := range map[string]string{"plain": "", "adapter": "../../testdata/lm/llama/adapters/lora"} {
		for _, s := range []sample.Sampler{{}, {
			Temperature: 1, TopK: 20, TopP: 0.9, RepetitionPenalty: 1.1, FrequencyPenalty: 0.2, PresencePenalty: 0.2, Bias: map[int32]float32{7: 1}, Seed: 1,
		}} {
			o := generate.Options{}
			g := generator(t, dev, m, nil, o)
			if adapter != "" {
				g = generator(t, dev, m, state(t, m, adapter), o)
			}
			made := func(n int) uint64 {
				var before, after runtime.MemStats
				g.Reset()
				runtime.ReadMemStats(&before)
				r, err := g.Generate(ctx, tokens(m, 9), generate.GenerateOptions{MaxNewTokens: n, Sampler: s, IgnoreEOS: true}, nil)
				runtime.ReadMemStats(&after)
				require.NoError(t, err)
				require.Len(t, r.IDs, n)
				return after.Mallocs - before.Mallocs
			}
			made(110)
			few, many := made(20), made(110)
			require.InDelta(t, few, many, 8+90*2*float64(testdevice.CopyAllocs(dev.Info())), "%s: allocations of 20 and of 110 tokens", name)
		}
	}
}
