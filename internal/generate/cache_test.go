package generate_test

import (
	"cmp"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/internal/generate"
	"github.com/lorafuse/lorafuse/internal/ir"
	"github.com/lorafuse/lorafuse/internal/nn"
)

// Reading a text in pieces, with the keys and values of what came before in
// the cache, gives the logits of reading it at once.
func TestCacheEqualsWholeText(t *testing.T) {
	for name, dir := range map[string]string{
		"llama":              llama,
		"qwen2":              "../../testdata/lm/qwen2/model",
		"qwen3":              "../../testdata/lm/qwen3/model",
		"two rotary bases":   "../../testdata/lm/gemma3/model",
		"soft caps":          "../../testdata/extra/gemma2",
		"norms of all heads": "../../testdata/extra/olmo2",
		"one window":         "../../testdata/lm/mistral/model",
		"small window":       "../../testdata/extra/mistral-window",
		"windows and none":   "../../testdata/extra/qwen2-mixed-windows",
		"rotary llama3":      withConfig(t, llama, "../../testdata/lm/llama/rope-llama3/config.json"),
		"rotary yarn":        withConfig(t, llama, "../../testdata/lm/llama/rope-yarn/config.json"),
		"yarn and tied head": "../../testdata/extra/yarn-mscale",
		"one key head":       "../../testdata/extra/llama-f32",
		"experts":            "../../testdata/extra/mixtral",
		"experts and MLPs":   "../../testdata/extra/qwen3-moe",
	} {
		t.Run(name, func(t *testing.T) {
			dev, m := open(t, dir)
			n := min(100, m.Config.MaxLength()-1)
			ids, vocab := tokens(m, n), m.Config.VocabSize
			want, err := scorer(t, dev, m, nil, n).Logits(ctx, [][]int32{ids})
			require.NoError(t, err)
			for _, chunk := range []int{1, 3, 7, 64} {
				g := generator(t, dev, m, nil, generate.Options{PrefillChunk: chunk})
				for _, prompt := range []int{1, 2, chunk, chunk + 1, n / 2} {
					g.Reset()
					for at := min(prompt, n); at <= n; at++ { // a prompt, then token by token
						got, err := g.Read(ctx, ids[:at])
						require.NoError(t, err)
						requireClose(t, want[(at-1)*vocab:at*vocab], got, "chunk %d, prompt %d, token %d", chunk, prompt, at)
					}
				}
				g.Reset()
				got, err := g.Read(ctx, ids)
				require.NoError(t, err)
				requireClose(t, want[(n-1)*vocab:], got, "chunk %d", chunk)
			}
		})
	}
}

func TestCacheWithAdapters(t *testing.T) {
	dirs, err := filepath.Glob("../../testdata/lm/qwen3/adapters/*")
	require.NoError(t, err)
	require.NotEmpty(t, dirs)
	bases := map[string]string{
		"../../testdata/peft/tokens-tied/adapter":       "../../testdata/peft/base/small-qwen2",
		"../../testdata/peft/embedding-tied/adapter":    "../../testdata/peft/base/small-qwen2",
		"../../testdata/peft/mixtral-experts/adapter":   "../../testdata/extra/mixtral",
		"../../testdata/peft/qwen3-moe-experts/adapter": "../../testdata/extra/qwen3-moe",
	}
	for _, dir := range append(dirs, slices.Sorted(maps.Keys(bases))...) {
		base := cmp.Or(bases[dir], "../../testdata/lm/qwen3/model")
		dev, m := open(t, base)
		s := state(t, m, dir)
		ids, vocab := tokens(m, 40), m.Config.VocabSize
		want, err := scorer(t, dev, m, s, 40).Logits(ctx, [][]int32{ids})
		require.NoError(t, err)
		g := generator(t, dev, m, s, generate.Options{PrefillChunk: 7})
		for at := 20; at <= 40; at++ {
			got, err := g.Read(ctx, ids[:at])
			require.NoError(t, err)
			requireClose(t, want[(at-1)*vocab:at*vocab], got, "%s, token %d", dir, at)
		}
	}
}

// With dynamic scaling all chunks of a prompt turn by the angles of its whole
// length; what was read for another length is read again.
func TestDynamicRotaryScaling(t *testing.T) {
	dev, m := open(t, withConfig(t, llama, "../../testdata/lm/llama/rope-dynamic/config.json"))
	require.Equal(t, 32, m.Config.MaxPositions)
	require.Equal(t, 64, m.Config.MaxLength())
	ids, vocab := tokens(m, 60), m.Config.VocabSize
	sc := scorer(t, dev, m, nil, 60)
	for _, chunk := range []int{1, 7, 64} {
		g := generator(t, dev, m, nil, generate.Options{PrefillChunk: chunk})
		for _, n := range []int{10, 32, 33, 50, 60, 40, 31} {
			got, err := g.Read(ctx, ids[:n])
			require.NoError(t, err)
			want, err := sc.Logits(ctx, [][]int32{ids[:n]})
			require.NoError(t, err)
			requireClose(t, want[(n-1)*vocab:], got, "chunk %d, %d tokens", chunk, n)
		}
	}
}

// A cache that grows keeps what was read.
func TestCacheGrows(t *testing.T) {
	dev, m := open(t, llama)
	m.Config.MaxPositions = 1000 // rotary positions have no end
	ids, vocab := tokens(m, 700), m.Config.VocabSize
	want, err := scorer(t, dev, m, nil, 700).Logits(ctx, [][]int32{ids})
	require.NoError(t, err)
	g := generator(t, dev, m, nil, generate.Options{})
	for _, n := range []int{5, 250, 256, 257, 500, 700} {
		got, err := g.Read(ctx, ids[:n])
		require.NoError(t, err)
		requireClose(t, want[(n-1)*vocab:n*vocab], got, "%d tokens", n)
	}
	assert.Equal(t, 1000, g.Capacity(), "no more than the text can have")

	// An answer of unknown length makes room as it goes.
	var answers [2][]int32
	for i, n := range []int{0, 800} {
		g := generator(t, dev, m, nil, generate.Options{})
		r, err := g.Generate(ctx, ids[:200], generate.GenerateOptions{MaxNewTokens: n, IgnoreEOS: true}, func(x generate.Token) error {
			if i == 0 && len(answers[0]) == 100 {
				assert.Equal(t, 512, g.Capacity())
			}
			answers[i] = append(answers[i], x.ID)
			return nil
		})
		require.NoError(t, err)
		require.Equal(t, answers[i], r.IDs)
	}
	assert.Len(t, answers[0], 800)
	assert.Equal(t, answers[1], answers[0])
}

// Of a prompt that begins like the last text only the rest is read.
func TestPrefixIsReused(t *testing.T) {
	dev, m := open(t, llama)
	ids := tokens(m, 90)
	fresh := func(prompt []int32) []int32 {
		r, err := generator(t, dev, m, nil, generate.Options{}).Generate(ctx, prompt, generate.GenerateOptions{MaxNewTokens: 8, IgnoreEOS: true}, nil)
		require.NoError(t, err)
		require.Zero(t, r.CachedTokens)
		return r.IDs
	}
	g := generator(t, dev, m, nil, generate.Options{PrefillChunk: 16})
	ask := func(prompt []int32, cached int) []int32 {
		r, err := g.Generate(ctx, prompt, generate.GenerateOptions{MaxNewTokens: 8, IgnoreEOS: true}, nil)
		require.NoError(t, err)
		assert.Equal(t, cached, r.CachedTokens)
		assert.Equal(t, len(prompt), r.PromptTokens)
		assert.Equal(t, fresh(prompt), r.IDs)
		return r.IDs
	}
	first := ask(ids[:40], 0)
	turn := append(append(append([]int32{}, ids[:40]...), first...), ids[50:60]...) // the answer is part of the next prompt
	ask(turn, 47)                                                                   // the last token of the answer was never read
	ask(turn, 57)                                                                   // again: the last token is read for its logits
	ask(ids[:30], 29)
	ask(ids[60:], 0)
	g.Reset()
	ask(ids[60:], 0)
}

// Of the rows of a table a run writes its own, in place, and only attention
// reads others: no work grows with the capacity.
func TestNoWorkGrowsWithTheCapacity(t *testing.T) {
	dev, m := open(t, llama)
	m.Config.MaxPositions = 3000
	g := generator(t, dev, m, nil, generate.Options{PrefillChunk: 16})
	_, err := g.Read(ctx, tokens(m, 2500))
	require.NoError(t, err)
	capacity := g.Capacity()
	for _, p := range g.Programs() {
		updates, dims := 0, p.MaxDims()
		for _, l := range p.Launches {
			switch l.Op {
			case ir.UpdateRows:
				updates++
				assert.Equal(t, ir.SpaceArg, l.Out[0].Space)
				assert.Equal(t, l.In[0].Index, l.Out[0].Index, "the table is copied")
			case ir.Attention:
			default:
				for _, r := range slices.Concat(l.In, l.Out) {
					rows := 0
					if len(r.Type.Shape) > 0 {
						rows = r.Type.Shape[0].Resolve(dims)
					}
					assert.NotEqual(t, capacity, rows, "%v of %v", l.Op, r)
				}
			}
		}
		assert.Equal(t, 2*m.Config.Layers, updates)
	}
}

// Decoding is timed at two places of a text. What a token costs more at the
// later one is reading the cache, which is reported as bytes.
func BenchmarkDecode(b *testing.B) {
	for _, at := range []int{64, 4096} {
		b.Run(fmt.Sprintf("token-%d", at), func(b *testing.B) {
			dev, m := open(b, "../../examples/godoc/model")
			m.Config.MaxPositions = 1 << 15
			keys := m.Modules()[slices.IndexFunc(m.Modules(), func(m nn.Module) bool { return strings.HasSuffix(m.Name, "k_proj") })]
			g := generator(b, dev, m, nil, generate.Options{})
			ids := tokens(m, at)
			_, err := g.Read(ctx, ids)
			require.NoError(b, err)
			for b.Loop() {
				ids[at-1] ^= 1 // the last token is read again, the others are kept
				if _, err := g.Read(ctx, ids); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(at*m.Config.Layers*keys.Out*2*4), "cache-bytes")
		})
	}
}
