package batching_test

import (
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/dev/testdevice"
	"github.com/lorafuse/lorafuse/internal/model"
	"github.com/lorafuse/lorafuse/internal/serve/batching"
)

// withConfig is a folder with the weights of dir and another config.json.
func withConfig(t *testing.T, dir, config string) string {
	t.Helper()
	to := t.TempDir()
	for name, from := range map[string]string{"model.safetensors": filepath.Join(dir, "model.safetensors"), "config.json": config} {
		raw, err := os.ReadFile(from)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(to, name), raw, 0o644))
	}
	return to
}

// drawn are requests for short and long answers to prompts that begin alike, and what is
// expected of them.
func (b *bench) drawn(n, longest int) (asked []batching.Request, want []answer) {
	r := rand.New(rand.NewPCG(5, 6))
	names := append(slices.Sorted(maps.Keys(b.dirs)), "")
	for i := range n {
		p := slices.Concat(prompt(b.m, uint64(r.IntN(2)), 1+r.IntN(longest/2)), prompt(b.m, uint64(i), r.IntN(3)))
		asked = append(asked, greedy(names[i*len(names)/n], p, 1+r.IntN(longest-len(p))))
		want = append(want, b.expected(asked[i]))
	}
	return asked, want
}

// all asks for everything at once: something else keeps the engine busy until all is there.
func (b *bench) all(asked []batching.Request) []answer {
	got := make([]answer, len(asked))
	var work sync.WaitGroup
	time.Sleep(20 * time.Millisecond) // the engine may still be at the end of the step before
	b.gate.Lock()
	work.Go(func() {
		_, _, err := collect(b.Engine, greedy("", []int32{1}, 2))
		assert.NoError(b.t, err)
	})
	b.begun()
	for i := range asked {
		work.Go(func() {
			answers, _, err := collect(b.Engine, asked[i])
			assert.NoError(b.t, err)
			got[i] = answers[0]
		})
	}
	b.await(1 + len(asked))
	b.gate.Unlock()
	work.Wait()
	return got
}

// pair returns two adapters of a case of testdata/peft: as it was filled, and as it was trained.
func pair(name string) map[string]string {
	dir := filepath.Join("../../../testdata/peft", name)
	return map[string]string{"filled": filepath.Join(dir, "adapter"), "trained": filepath.Join(dir, "train/final")}
}

// TestModels: windows, experts and rotary tables that change with the length of the text
// are what they are for a text alone, also where it is read again.
func TestModels(t *testing.T) {
	preemptions := uint64(0)
	dynamic := withConfig(t, llama, "../../../testdata/lm/llama/rope-dynamic/config.json")
	for _, c := range []struct {
		name, dir string
		adapters  map[string]string
		longest   int
	}{
		{"mistral", "../../../testdata/lm/mistral/model", nil, 48},
		{"gemma3", "../../../testdata/lm/gemma3/model", map[string]string{"lora": "../../../testdata/lm/gemma3/adapters/lora"}, 48},
		{"gemma2", "../../../testdata/extra/gemma2", map[string]string{"lora": "../../../testdata/peft/gemma2/adapter"}, 40},
		{"olmo2", "../../../testdata/extra/olmo2", map[string]string{"lora": "../../../testdata/peft/olmo2/adapter"}, 40},
		{"ministral3", "../../../testdata/extra/ministral3", map[string]string{"lora": "../../../testdata/peft/ministral3/adapter"}, 40},
		{"gemma3 within a whole model", "../../../testdata/extra/gemma3-whole", map[string]string{"lora": "../../../testdata/peft/gemma3-whole/adapter"}, 40},
		{"llava-next", "../../../testdata/extra/llava-next", pair("llava-next"), 40},
		{"aya-vision", "../../../testdata/extra/aya-vision", pair("aya-vision"), 40},
		{"qwen3-moe", "../../../testdata/extra/qwen3-moe", nil, 40},
		{"qwen3-vl-moe", "../../../testdata/extra/qwen3-vl-moe-tied", pair("qwen3-vl-moe"), 40},
		{"phi3", "../../../testdata/extra/phi3", pair("phi3"), 30},
		{"granite", "../../../testdata/extra/granite", pair("granite"), 40},
		{"granite-tied", "../../../testdata/extra/granite-tied", pair("granite-tied"), 40},
		{"granite-hybrid", "../../../testdata/extra/granite-hybrid", pair("granite-hybrid"), 40},
		{"olmo3", "../../../testdata/extra/olmo3", pair("olmo3"), 40},
		{"smollm3", "../../../testdata/extra/smollm3", pair("smollm3"), 40},
		{"exaone4", "../../../testdata/extra/exaone4", pair("exaone4"), 40},
		{"glm4", "../../../testdata/extra/glm4", pair("glm4"), 40},
		{"cohere", "../../../testdata/extra/cohere", pair("cohere"), 40},
		{"cohere2", "../../../testdata/extra/cohere2", pair("cohere2"), 40},
		{"gpt-oss", "../../../testdata/extra/gpt-oss", pair("gpt-oss"), 40},
		{"gemma4", "../../../testdata/extra/gemma4", pair("gemma4"), 40},
		{"gemma4-shared", "../../../testdata/extra/gemma4-shared", pair("gemma4-shared"), 40},
		{"gpt2", "../../../testdata/extra/gpt2", pair("gpt2"), 40},
		{"gpt-neox", "../../../testdata/extra/gpt-neox", pair("gpt-neox"), 40},
		{"apertus", "../../../testdata/extra/apertus", pair("apertus"), 40},
		{"mixed windows", "../../../testdata/extra/qwen2-mixed-windows", nil, 40},
		{"dynamic", "../../../testdata/extra/dynamic", nil, 48},
		{"dynamic with an adapter", dynamic, map[string]string{"lora": "../../../testdata/lm/llama/adapters/lora", "dora": "../../../testdata/lm/llama/adapters/dora"}, 60},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newBench(t, c.dir, c.adapters, batching.Options{MaxLength: c.longest, MaxTexts: 5, MaxBatchTokens: 16, CacheTokens: 2 * c.longest, PageRows: 4})
			asked, want := b.drawn(20, c.longest)
			for range 2 { // the second time pages of all prompts may be there
				require.Equal(t, want, b.all(asked))
			}
			require.Positive(t, b.Stats().Pages.Hits)
			preemptions += b.Stats().Preemptions
		})
	}
	require.Positive(t, preemptions)
}

// TestPackedModels: adapters that are served together on weights of GPTQ and AWQ, in blocks and
// widened, get the answers that each gets alone.
func TestPackedModels(t *testing.T) {
	for _, name := range []string{"gptq-4", "gptq-4-act", "gptq-8", "awq"} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join("../../../testdata/quant", name)
			const config = `"r":4,"lora_alpha":8,"target_modules":["q_proj","v_proj","o_proj","gate_proj","down_proj"]`
			m := open(t, dir)
			adapters := map[string]string{"first": built(t, m, config, 1), "second": built(t, m, config, 2)}
			b := newBench(t, dir, adapters, batching.Options{MaxLength: 40, MaxTexts: 5, MaxBatchTokens: 16, CacheTokens: 80, PageRows: 4})
			p := prompt(m, 1, 8)
			require.NotEqual(t, b.expected(greedy("first", p, 4)).Said, b.expected(greedy("second", p, 4)).Said)
			require.NotEqual(t, b.expected(greedy("first", p, 4)).Said, b.expected(greedy("", p, 4)).Said)
			asked, want := b.drawn(20, 40)
			require.Equal(t, want, b.all(asked))
		})
	}
}

// TestStored: with keys and values in bf16 answers are those of a generator that keeps
// them so too, but for the rounding of its products.
func TestStored(t *testing.T) {
	dev := testdevice.Open(t, backend.Options{Threads: 1, Precision: backend.BF16})
	b := benchOn(t, dev, open(t, llama), map[string]string{"dora": "../../../testdata/lm/llama/adapters/dora"}, batching.Options{MaxTexts: 4, PageRows: 4})
	asked, want := b.drawn(8, 24)
	near(t, want, b.all(asked), 0.05)
}

// near compares the log-probabilities of answers, as far as these agree: where two tokens
// are as likely, what follows may differ.
func near(t *testing.T, want, got []answer, within float64) {
	t.Helper()
	agree, all := 0, 0
	for i := range got {
		require.Len(t, got[i].IDs, len(want[i].IDs))
		all += len(got[i].IDs)
		for j, l := range got[i].Said {
			if l.ID != want[i].Said[j].ID {
				require.InDelta(t, want[i].Said[j].Logprob, l.Logprob, within)
				break
			}
			require.InDelta(t, want[i].Said[j].Logprob, l.Logprob, within, "answer %d, token %d", i, j)
			agree++
		}
	}
	require.Greater(t, agree, all/2)
}

// TestFast: on a device that adds up as it likes, answers are those of a generator but
// for rounding.
func TestFast(t *testing.T) {
	dev := testdevice.Open(t, backend.Options{Threads: 2})
	b := benchOn(t, dev, open(t, llama), map[string]string{"lora": "../../../testdata/lm/llama/adapters/lora"}, batching.Options{MaxTexts: 4, PageRows: 4})
	asked, want := b.drawn(8, 24)
	near(t, want, b.all(asked), 1e-4)
}

// TestTask: a model that continues no texts is refused.
func TestTask(t *testing.T) {
	_, err := batching.New(ctx, testdevice.Open(t, backend.Options{}), open(t, "../../../testdata/encoders/bert"), batching.Options{})
	require.ErrorIs(t, err, model.ErrTask)
}
