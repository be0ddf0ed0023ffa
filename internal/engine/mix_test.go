package engine_test

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/dev/draws"
	"github.com/lorafuse/lorafuse/graph"
	"github.com/lorafuse/lorafuse/internal/data"
	"github.com/lorafuse/lorafuse/internal/engine"
	"github.com/lorafuse/lorafuse/internal/model"
	"github.com/lorafuse/lorafuse/internal/nn"
	"github.com/lorafuse/lorafuse/lora"
)

// mixture is a model on a device with the slots of adapters of all kinds.
type mixture struct {
	dev   backend.Device
	m     *model.Model
	r     *engine.Runtime
	slots []*engine.Slot // of adapters
	none  *engine.Slot
	names map[*engine.Slot]string
	alone map[*engine.Slot]*engine.Program
	width int // of the results
}

// most is the most tokens of a run.
const most = 96

// newMixture opens a model, and the adapters among dirs that can be used.
func newMixture(t testing.TB, base string, o backend.Options, dirs []string, built ...string) *mixture {
	m, err := model.Open(base)
	require.NoError(t, err)
	t.Cleanup(func() { m.Close() })
	return mixtureOf(t, m, o, dirs, built...)
}

func mixtureOf(t testing.TB, m *model.Model, o backend.Options, dirs []string, built ...string) *mixture {
	dev, err := backend.Open(backend.CPU, o)
	require.NoError(t, err)
	t.Cleanup(func() { dev.Close() })
	x := &mixture{dev: dev, m: m, r: engine.New(dev, m), names: map[*engine.Slot]string{}, alone: map[*engine.Slot]*engine.Program{}, width: m.Config.VocabSize}
	t.Cleanup(func() { x.r.Close() })
	if !x.speaks() {
		x.width = m.Config.HiddenSize
	}
	for _, dir := range dirs {
		s, err := lora.LoadState(dir, m, m.Config.ModelType, m.Modules())
		if strings.Contains(dir, "pissa-niter") {
			require.ErrorIs(t, err, lora.ErrUnsupported)
			continue
		}
		require.NoError(t, err, dir)
		x.add(t, dir, s)
	}
	for i, config := range built {
		x.add(t, config, x.state(t, config, uint64(i)))
	}
	x.none = x.slot(t, "none", nil)
	return x
}

// speaks reports whether the model has logits.
func (x *mixture) speaks() bool {
	return x.m.Config.ModelType != "bert" && x.m.Config.ModelType != "mpnet"
}

// state is an adapter of random numbers.
func (x *mixture) state(t testing.TB, config string, seed uint64) *lora.State {
	c, err := lora.ParseConfig([]byte(`{"peft_type":"LORA",` + config + `}`))
	require.NoError(t, err)
	p, err := lora.NewPlacement(c, lora.ModelOf(x.m.Config.ModelType, x.m.Modules()))
	require.NoError(t, err)
	s, err := p.InitialState(x.m, seed)
	require.NoError(t, err)
	r := rand.New(rand.NewPCG(seed, 7))
	for _, spec := range p.Tensors() {
		for i := range s.Values[spec.Key] {
			s.Values[spec.Key][i] += float32(r.NormFloat64()) / 8
		}
	}
	return s
}

func (x *mixture) add(t testing.TB, name string, s *lora.State) {
	x.slots = append(x.slots, x.slot(t, name, s))
}

func (x *mixture) slot(t testing.TB, name string, s *lora.State) *engine.Slot {
	slot, err := x.r.NewSlot(s)
	require.NoError(t, err)
	t.Cleanup(slot.Free)
	x.names[slot] = name
	return slot
}

// draw draws slots, also of none.
func (x *mixture) draw(t *rapid.T, least, most int) (slots []*engine.Slot) {
	for range rapid.IntRange(least, most).Draw(t, "adapters") {
		if i := rapid.IntRange(-1, len(x.slots)-1).Draw(t, "slot"); i >= 0 {
			slots = append(slots, x.slots[i])
		} else {
			slots = append(slots, x.none)
		}
	}
	return slots
}

// spec is the program of what the model says of each token.
func (x *mixture) spec() engine.Spec {
	return engine.Spec{Bounds: map[string]int{nn.Tokens: most}, Build: func(b *nn.Builder, p *graph.Program) {
		out := x.m.Build(b)
		if x.speaks() {
			p.Result("said", out.Logits(b, graph.Tensor{}))
			return
		}
		last, err := out.Last()
		if err != nil {
			b.G.Fail(err)
		}
		p.Result("said", last)
	}}
}

func (x *mixture) load(t require.TestingT, s *engine.Slot) *engine.Program {
	d, err := x.r.Plan(s, x.spec())
	require.NoError(t, err)
	ps, err := x.r.Load(ctx, s, nil, d)
	require.NoError(t, err)
	return ps[0]
}

// run gives what a program says of the tokens of texts, one behind the other, of which
// each has one of several adapters.
func (x *mixture) run(t require.TestingT, p *engine.Program, s *engine.Slot, texts []text) []float32 {
	var b data.Batch
	var adapters []int32
	for _, t := range texts {
		b.Add(t.ids, nil)
		adapters = append(adapters, slices.Repeat([]int32{t.adapter}, len(t.ids))...)
	}
	b.SetInts(nn.Adapters, adapters)
	require.NoError(t, p.Run(ctx, s, &b, b.Longest()))
	out := make([]float32, len(adapters)*x.width)
	require.NoError(t, p.Read(ctx, "said", out))
	return out
}

// says is what the program of one adapter gives a text.
func (x *mixture) says(t require.TestingT, s *engine.Slot, ids []int32) []float32 {
	if x.alone[s] == nil {
		x.alone[s] = x.load(t, s)
	}
	return x.run(t, x.alone[s], s, []text{{ids: ids}})
}

// text is a text with the number of its adapter.
type text struct {
	ids     []int32
	adapter int32
}

// drawTexts draws texts with adapters of which there are so many.
func (x *mixture) drawTexts(t *rapid.T, adapters int) []text {
	var texts []text
	left := most
	for range rapid.IntRange(1, 20).Draw(t, "texts") {
		n := min(left, rapid.OneOf(rapid.Just(1), rapid.IntRange(1, 12)).Draw(t, "length"))
		if left -= n; n == 0 {
			break
		}
		ids := make([]int32, n)
		for i := range ids {
			ids[i] = int32(rapid.IntRange(0, x.m.Config.VocabSize-1).Draw(t, "id"))
		}
		texts = append(texts, text{ids, int32(rapid.IntRange(-1, adapters-1).Draw(t, "adapter"))})
	}
	return texts
}

// compare tells the texts of a mixed batch apart and compares each with what its adapter
// alone says of it: to the bit, or within 1e-5 of the largest number. Those of an
// adapter that is ill say nothing.
func (x *mixture) compare(t require.TestingT, slots []*engine.Slot, texts []text, got []float32, exact bool, ill *engine.Slot) {
	for _, text := range texts {
		own := x.none
		if text.adapter >= 0 {
			own = slots[text.adapter]
		}
		mine := got[:len(text.ids)*x.width]
		got = got[len(mine):]
		if own == ill {
			continue
		}
		want := x.says(t, own, text.ids)
		name := x.names[own]
		if exact {
			require.True(t, slices.Equal(want, mine), "%s: %d tokens, largest difference %v", name, len(text.ids), apart(want, mine))
			continue
		}
		require.LessOrEqual(t, apart(want, mine), 1e-5, name)
	}
}

// apart is the largest difference relative to the largest number.
func apart(want, got []float32) float64 {
	diff, size := 0.0, 0.0
	for i := range want {
		diff, size = math.Max(diff, math.Abs(float64(want[i])-float64(got[i]))), math.Max(size, math.Abs(float64(want[i])))
	}
	if diff != diff {
		return math.Inf(1)
	}
	return diff / size
}

// casesOf are the adapters of PEFT for a base model.
func casesOf(t *testing.T, base string) (dirs []string) {
	paths, err := filepath.Glob("../../testdata/peft/*/case.json")
	require.NoError(t, err)
	for _, path := range paths {
		raw, err := os.ReadFile(path)
		require.NoError(t, err)
		var c struct{ Base string }
		require.NoError(t, json.Unmarshal(raw, &c))
		if filepath.Join(filepath.Dir(path), c.Base) == filepath.Clean(base) {
			dirs = append(dirs, filepath.Join(filepath.Dir(path), "adapter"))
		}
	}
	lm, err := filepath.Glob(filepath.Join(filepath.Dir(base), "adapters", "*"))
	require.NoError(t, err)
	dirs = append(dirs, lm...)
	require.NotEmpty(t, dirs)
	return dirs
}

// ranks are adapters of ranks 1 to 64.
func ranks(settings string) (built []string) {
	for _, r := range []int{1, 3, 7, 8, 33, 64} {
		built = append(built, fmt.Sprintf(`"r":%d,"lora_alpha":%d,`, r, 2*r)+settings)
	}
	return built
}

// mixtures are models with all their adapters.
var mixtures = []struct {
	base  string
	built []string
}{
	{"../../testdata/peft/base/small-llama", append(ranks(`"target_modules":"all-linear"`), ranks(`"target_modules":["q_proj","o_proj","lm_head"],"use_dora":true,"use_rslora":true`)...)},
	{"../../testdata/peft/base/small-qwen2", append(ranks(`"target_modules":["q_proj","k_proj"],"lora_bias":true,"bias":"all"`), ranks(`"target_modules":["v_proj"],"use_dora":true`)...)},
	{"../../testdata/lm/llama/model", nil},
	{"../../testdata/lm/gemma3/model", append(ranks(`"target_modules":"all-linear"`), `"target_modules":["q_proj"],"modules_to_save":["q_norm","post_feedforward_layernorm","down_proj"]`)},
	{"../../testdata/extra/qwen3-moe", append(ranks(`"target_modules":["q_proj"],"target_parameters":["mlp.experts.down_proj"]`), `"target_modules":["o_proj"],"target_parameters":["gate.weight"],"modules_to_save":["k_norm"]`)},
	{"../../testdata/extra/mixtral", nil},
	{"../../testdata/encoders/bert", append(ranks(`"target_modules":["query","dense"]`), `"target_modules":["value"],"use_dora":true,"modules_to_save":["LayerNorm","position_embeddings"],"bias":"all"`, `"target_modules":["word_embeddings","token_type_embeddings"]`)},
}

// TestMix: rows with adapters of all kinds, in any company and order, and with an adapter
// of NaN beside them, get what the program of their adapter alone gives them: to the bit
// on a device that is batch invariant.
func TestMix(t *testing.T) {
	for i, c := range mixtures {
		for _, exact := range []bool{true, false} {
			threads := 1 + (i+2)%3
			if !exact {
				threads = 1 + i%3
			}
			name := filepath.Base(strings.TrimSuffix(c.base, "/model"))
			t.Run(fmt.Sprintf("%s/%d threads, batch invariant %v", name, threads, exact), func(t *testing.T) {
				var dirs []string
				if name != "bert" {
					dirs = casesOf(t, c.base)
				}
				x := newMixture(t, c.base, backend.Options{Threads: threads, BatchInvariant: exact}, dirs, c.built...)
				x.requireAll(t, exact)
				draws.Check(t, 30, func(t *rapid.T) {
					slots := x.draw(t, 3, 16)
					var ill *engine.Slot
					if rapid.Bool().Draw(t, "ill") {
						ill = x.ill(t, rapid.IntRange(0, len(x.slots)-1).Draw(t, "as"))
						defer ill.Free()
						slots[rapid.IntRange(0, len(slots)-1).Draw(t, "at")] = ill
					}
					mix := x.r.NewMultiAdapter(slots...)
					p := x.load(t, mix)
					defer x.r.Unload(p)
					texts := x.drawTexts(t, len(slots))
					x.compare(t, slots, texts, x.run(t, p, mix, texts), exact, ill)
				})
			})
		}
	}
}

// requireAll mixes all adapters at once.
func (x *mixture) requireAll(t *testing.T, exact bool) {
	mix, texts := x.r.NewMultiAdapter(x.slots...), []text(nil)
	p := x.load(t, mix)
	defer x.r.Unload(p)
	for i := range x.slots {
		texts = append(texts, text{[]int32{int32(3 * i % x.m.Config.VocabSize), 5}, int32(i)})
	}
	got := x.run(t, p, mix, texts)
	x.compare(t, x.slots, texts, got, exact, nil)
	for i, text := range texts {
		plain := x.says(t, x.none, text.ids)
		require.NotEqual(t, plain, got[i*len(plain):][:len(plain)], "the adapter %s does something", x.names[x.slots[i]])
	}
}

// ill is an adapter like one of the others whose numbers are none.
func (x *mixture) ill(t require.TestingT, as int) *engine.Slot {
	like := x.slots[as].State()
	state := *like
	state.Values = map[string][]float32{}
	for key, v := range like.Values {
		state.Values[key] = slices.Repeat([]float32{float32(math.NaN())}, len(v))
	}
	slot, err := x.r.NewSlot(&state)
	require.NoError(t, err)
	return slot
}
