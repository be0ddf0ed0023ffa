package lora_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/dev/testdevice"
	"github.com/lorafuse/lorafuse/graph"
	"github.com/lorafuse/lorafuse/internal/data"
	"github.com/lorafuse/lorafuse/internal/engine"
	"github.com/lorafuse/lorafuse/internal/host"
	"github.com/lorafuse/lorafuse/internal/ir"
	"github.com/lorafuse/lorafuse/internal/model"
	"github.com/lorafuse/lorafuse/internal/nn"
	"github.com/lorafuse/lorafuse/lora"
)

// toyConfigs are configurations of a method that one file of tests adds: with terms, and without.
var toyConfigs = []string{
	`{"peft_type":"TOY","r":3,"projection_seed":7,"d_initial":0.25,"target_modules":["q_proj","down_proj"]}`,
	`{"peft_type":"TOY","r":2,"whole":true,"target_modules":["q_proj","v_proj"]}`,
}

// moved returns the state of an adapter whose values are random steps from the initial ones.
func moved(t *testing.T, m *model.Model, config string, seed uint64) *lora.State {
	t.Helper()
	c, err := lora.ParseConfig([]byte(config))
	require.NoError(t, err)
	require.Empty(t, c.Warnings)
	p, err := lora.NewPlacement(c, lora.ModelOf(m.Config.ModelType, m.Modules()))
	require.NoError(t, err)
	s, err := p.InitialState(m, seed)
	require.NoError(t, err)
	r := rand.New(rand.NewPCG(seed, 7))
	for _, x := range p.Tensors() {
		for i := range s.Values[x.Key] {
			s.Values[x.Key][i] += float32(r.NormFloat64()) / 4
		}
	}
	return s
}

// A method of its own file begins with the values of its settings, and its folder is loaded with
// the same settings and values.
func TestMethodSaves(t *testing.T) {
	m := openModel(t, "../testdata/peft/base/small-llama")
	c, err := lora.ParseConfig([]byte(toyConfigs[0]))
	require.NoError(t, err)
	require.Equal(t, "Toy", c.Method())
	require.NotContains(t, string(c.JSON()), "lora_alpha", "no keys of LoRA")
	p, err := lora.NewPlacement(c, lora.ModelOf(m.Config.ModelType, m.Modules()))
	require.NoError(t, err)
	s, err := p.InitialState(m, 1)
	require.NoError(t, err)
	const d = "base_model.model.model.layers.0.self_attn.q_proj.toy_d"
	require.Equal(t, []float32{0.25, 0.25, 0.25}, s.Values[d])

	dir := t.TempDir()
	require.NoError(t, s.Save(dir, false))
	_, err = lora.LoadState(dir, m, m.Config.ModelType, m.Modules())
	require.ErrorIs(t, err, lora.ErrZeroB)
	require.ErrorContains(t, err, "q_proj.toy_b")

	want := moved(t, m, toyConfigs[0], 1)
	require.NoError(t, want.Save(dir, false))
	got, err := lora.LoadState(dir, m, m.Config.ModelType, m.Modules())
	require.NoError(t, err)
	require.Equal(t, want.Values, got.Values)
	require.Len(t, got.Base, 2, "frozen tensors of all targets")
	for name, x := range want.Base {
		require.Equal(t, x.Data, got.Base[name].Data, name)
	}
	require.Equal(t, want.Placement.Config().JSON(), got.Placement.Config().JSON())
	require.Contains(t, string(got.Placement.Config().JSON()), `"projection_seed": 7`)
	require.Equal(t, "{d_initial 0.25}", fmt.Sprint(got.Placement.Config().VariantSettings()[0]))

	_, err = lora.ParseConfig([]byte(`{"peft_type":"TOY","d_initial":"much"}`))
	require.ErrorContains(t, err, "d_initial: expected a number")
	c, err = lora.ParseConfig([]byte(`{"peft_type":"TOY","target_modules":["embed_tokens"]}`))
	require.NoError(t, err)
	_, err = lora.NewPlacement(c, lora.ModelOf(m.Config.ModelType, m.Modules()))
	require.ErrorIs(t, err, lora.ErrUnsupported)
}

// Its gradients are differences of the loss.
func TestMethodTrains(t *testing.T) {
	m := openModel(t, "../testdata/peft/base/small-llama")
	for _, config := range toyConfigs {
		s := moved(t, m, config, 2)
		h := host.Open(testdevice.Open(t, backend.Options{}), m)
		defer h.Close()
		slot, err := h.NewSlot(s)
		require.NoError(t, err)
		defer slot.Free()
		var trained []nn.Trained
		spec := engine.Spec{Name: "gradients", Bounds: map[string]int{nn.Tokens: 12}, Training: true, Build: func(b *nn.Builder, p *graph.Program) {
			loss := m.Build(b).Loss(b, model.NextToken)
			var params []graph.Tensor
			trained = b.Trained()
			for _, x := range trained {
				params = append(params, b.Train(x.Name, x.Shape...))
			}
			p.Result("loss", loss)
			for i, d := range b.G.GradientsWith(loss, params, ir.GradOptions{}) {
				p.Result(fmt.Sprint(i), d)
			}
		}}
		var batch data.Batch
		ids := []int32{3, 9, 27, 81, 14, 42, 7, 21, 5, 15, 45, 2}
		batch.Add(ids, append(slices.Clone(ids[1:]), 6))
		run := func() host.Results {
			r, err := h.Compute(t.Context(), slot, spec, &batch, len(ids))
			require.NoError(t, err)
			return r
		}
		get := func(r host.Results, name string) []float32 {
			x, err := r.Get(context.Background(), name)
			require.NoError(t, err)
			return x
		}
		first := run()
		gradients := map[string][]float32{}
		for i, x := range trained {
			gradients[x.Name] = get(first, fmt.Sprint(i))
		}
		require.Len(t, gradients, len(s.Values))
		for _, x := range trained {
			values, g := s.Values[x.Name], gradients[x.Name]
			// Along the gradient the loss changes by its square.
			square, norm := 0.0, 0.0
			for _, v := range g {
				square += float64(v) * float64(v)
			}
			loss := func(step float64) float64 {
				to := slices.Clone(values)
				for i := range to {
					to[i] += float32(step * float64(g[i]))
				}
				require.NoError(t, slot.Set(t.Context(), x.Name, to))
				slot.Changed()
				return float64(get(run(), "loss")[0])
			}
			norm = 0.05 / max(square, 1e-9)
			slope := (loss(norm) - loss(-norm)) / (2 * norm)
			loss(0)
			require.InEpsilon(t, square, slope, 0.02, x.Name)
		}
	}
}

// In a batch with other adapters its rows get what its own program gives them, bit for bit.
func TestMethodInMix(t *testing.T) {
	m := openModel(t, "../testdata/peft/base/small-llama")
	dev, err := backend.Open(backend.CPU, backend.Options{Threads: 1, BatchInvariant: true})
	require.NoError(t, err)
	defer dev.Close()
	h := host.Open(dev, m)
	defer h.Close()
	configs := append(slices.Clone(toyConfigs), `{"peft_type":"LOHA","r":3,"target_modules":["q_proj","down_proj"]}`, `{"peft_type":"LOKR","r":1,"target_modules":"all-linear","decompose_both":true}`,
		`{"peft_type":"LORA","r":4,"target_modules":"all-linear"}`, `{"peft_type":"LORA","r":2,"use_dora":true,"target_modules":["q_proj"]}`)
	var slots []*engine.Slot
	for i, c := range configs {
		slot, err := h.NewSlot(moved(t, m, c, uint64(i)))
		require.NoError(t, err)
		defer slot.Free()
		slots = append(slots, slot)
	}
	spec := engine.Spec{Name: "logits", Bounds: map[string]int{nn.Tokens: 27}, Build: func(b *nn.Builder, p *graph.Program) {
		p.Result("logits", m.Build(b).Logits(b, graph.Tensor{}))
	}}
	run := func(slot *engine.Slot, adapters ...int32) []float32 {
		var b data.Batch
		var rows []int32
		for i, a := range adapters {
			b.Add([]int32{3, 9, int32(5 + i)}, nil)
			rows = append(rows, a, a, a)
		}
		b.SetInts(nn.Adapters, rows)
		r, err := h.Compute(t.Context(), slot, spec, &b, len(rows))
		require.NoError(t, err)
		x, err := r.Get(t.Context(), "logits")
		require.NoError(t, err)
		return x
	}
	adapters := []int32{0, 1, -1, 2, 3, 1, 0, 4, 5}
	got := run(h.NewMultiAdapter(slots...), adapters...)
	n := 3 * m.Config.VocabSize
	plain := run(mustSlot(t, h, nil), make([]int32, len(adapters))...)
	for i, a := range adapters {
		mine := got[i*n : (i+1)*n]
		if a < 0 {
			require.Equal(t, plain[i*n:(i+1)*n], mine)
			continue
		}
		require.NotEqual(t, plain[i*n:(i+1)*n], mine)
		alone := run(slots[a], make([]int32, len(adapters))...)
		require.Equal(t, alone[i*n:(i+1)*n], mine, configs[a])
	}
}

func mustSlot(t *testing.T, h *host.Host, s *lora.State) *engine.Slot {
	slot, err := h.NewSlot(s)
	require.NoError(t, err)
	t.Cleanup(slot.Free)
	return slot
}

// The model that it is merged into gives the same logits.
func TestMethodMerges(t *testing.T) {
	m := openModel(t, "../testdata/peft/base/small-llama")
	dev := testdevice.Open(t, backend.Options{})
	rows := [][]int32{{3, 9, 27, 81, 14, 42}}
	for _, config := range toyConfigs {
		s := moved(t, m, config, 3)
		dir := t.TempDir()
		require.NoError(t, s.Save(dir, false))
		a := load(t, dir)
		merger, err := lora.NewMerger(a, s.Placement)
		require.NoError(t, err)
		require.Len(t, merger.Remaining(), len(s.Placement.Targets), "the frozen tensors are no weights of the model")
		alone := merged(t, m, a, s.Placement)
		want, plain := logits(t, dev, m, s, rows), logits(t, dev, m, nil, rows)
		require.Less(t, relative(want, logits(t, dev, alone, nil, rows)), 1e-5)
		require.Greater(t, relative(want, plain), 1e-2)
	}
}
