package engine_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/graph"
	"github.com/lorafuse/lorafuse/internal/data"
	"github.com/lorafuse/lorafuse/internal/engine"
	"github.com/lorafuse/lorafuse/internal/model"
	"github.com/lorafuse/lorafuse/internal/nn"
	"github.com/lorafuse/lorafuse/internal/quant"
	"github.com/lorafuse/lorafuse/lora"
)

// TestMixTakesOthers: a program runs with a mix of other adapters of the same shapes as
// it is, with slots that take turns in several mixes, and what is made of parameters
// follows them.
func TestMixTakesOthers(t *testing.T) {
	built := []string{`"target_modules":"all-linear","r":4`, `"target_modules":["q_proj","lm_head"],"use_dora":true`, `"target_modules":["q_proj"],"trainable_token_indices":{"lm_head":[3,5]}`}
	x := newMixture(t, "../../testdata/peft/base/small-llama", backend.Options{Threads: 1, BatchInvariant: true}, nil, built...)
	first := append(slices.Clone(x.slots), x.none)
	slots := slices.Clone(first)
	mix := x.r.NewMultiAdapter(slots...)
	p := x.load(t, mix)
	texts := []text{{[]int32{5, 6, 7}, 0}, {[]int32{5, 6}, 1}, {[]int32{9, 6, 2, 1}, 2}, {[]int32{5, 6}, 3}, {[]int32{4, 4}, 1}}
	x.compare(t, slots, texts, x.run(t, p, mix, texts), true, nil)
	weights := x.r.Bytes()

	for i := range built {
		slots[i] = x.slot(t, "other "+built[i], x.state(t, built[i], uint64(10+i)))
		next := x.r.NewMultiAdapter(slots...)
		require.True(t, p.Fits(next))
		for range 2 {
			x.compare(t, slots, texts, x.run(t, p, next, texts), true, nil)
			x.compare(t, first, texts, x.run(t, p, mix, texts), true, nil)
		}
		require.Equal(t, weights, x.r.Bytes(), "the base is there once")
	}
	values := slots[1].State().Values
	for key, v := range values {
		for j := range v {
			v[j] *= 2
		}
		require.NoError(t, slots[1].Set(ctx, key, v))
	}
	slots[1].Changed()
	again := x.slot(t, "twice", slots[1].State())
	next := x.r.NewMultiAdapter(slots...)
	x.compare(t, []*engine.Slot{slots[0], again, slots[2], slots[3]}, texts, x.run(t, p, next, texts), true, nil)

	for _, wrong := range [][]*engine.Slot{{slots[1], slots[0], slots[2], slots[3]}, slots[:3], {slots[0], slots[1], slots[2], slots[2]}} {
		require.False(t, p.Fits(x.r.NewMultiAdapter(wrong...)))
		var b data.Batch
		b.Add([]int32{1}, nil)
		b.SetInts(nn.Adapters, []int32{0})
		require.ErrorIs(t, p.Run(ctx, x.r.NewMultiAdapter(wrong...), &b, 1), engine.ErrSlot)
	}
	var b data.Batch
	b.Add([]int32{1}, nil)
	b.SetInts(nn.Adapters, nil)
	require.ErrorIs(t, p.Run(ctx, next, &b, 1), nn.ErrInput)
	b.SetInts(nn.Adapters, []int32{4})
	require.ErrorContains(t, p.Run(ctx, next, &b, 1), "id 5 at 0", "there are adapters 0 to 3")
	x.compare(t, first, texts, x.run(t, p, mix, texts), true, nil)
}

// TestProgramsFit: a program fits what it was loaded for too, where adapters of another
// shape have the same plan.
func TestProgramsFit(t *testing.T) {
	x := newMixture(t, "../../testdata/peft/base/small-llama", backend.Options{Threads: 1, BatchInvariant: true}, nil,
		`"target_modules":["q_proj"]`, `"target_modules":["q_proj"],"lora_dropout":0.5`)
	p := x.load(t, x.slots[0])
	require.False(t, p.Fits(x.slots[1]))
	d, err := x.r.Plan(x.slots[1], x.spec())
	require.NoError(t, err)
	ps, err := x.r.Load(ctx, x.slots[1], []*engine.Program{p}, d)
	require.NoError(t, err)
	require.Equal(t, []*engine.Program{p}, ps)
	ids := text{ids: []int32{5, 6, 7}}
	for _, s := range x.slots {
		require.True(t, p.Fits(s))
		require.Equal(t, x.says(t, s, ids.ids), x.run(t, p, s, []text{ids}))
	}
}

// TestMixOfMixes: the parts of a mix are numbered one behind the other, and a mix of none
// is the model.
func TestMixOfMixes(t *testing.T) {
	x := newMixture(t, "../../testdata/peft/base/small-llama", backend.Options{Threads: 1, BatchInvariant: true}, nil, ranks(`"target_modules":"all-linear"`)...)
	slots := x.slots[:3]
	texts := []text{{[]int32{5, 6, 7}, 0}, {[]int32{5, 6}, 1}, {[]int32{9, 6, 2, 1}, 2}, {[]int32{5, 6}, -1}}
	mix := x.r.NewMultiAdapter(x.r.NewMultiAdapter(slots[:2]...), slots[2])
	x.compare(t, slots, texts, x.run(t, x.load(t, mix), mix, texts), true, nil)
	require.Nil(t, mix.State())
	none := x.r.NewMultiAdapter()
	x.compare(t, nil, texts[3:], x.run(t, x.load(t, none), none, texts[3:]), true, nil)
}

// TestMixOfQuantized: rows of several adapters on quantised weights get what each gets
// alone, and where values lie in bf16, what rounding leaves of it.
func TestMixOfQuantized(t *testing.T) {
	m, err := model.Open("../../testdata/lm/llama/model")
	require.NoError(t, err)
	t.Cleanup(func() { m.Close() })
	require.NoError(t, m.Quantize(quant.Int8, nil))
	texts := []text{{[]int32{5, 6, 7}, 0}, {[]int32{5, 6}, 1}, {[]int32{9, 6, 2, 1}, 2}, {[]int32{5, 6}, -1}, {[]int32{9}, 3}}
	built := append(ranks(`"target_modules":"all-linear"`)[2:], `"target_modules":["q_proj","v_proj"],"use_dora":true`)
	for _, o := range []backend.Options{{Threads: 1, BatchInvariant: true}, {Threads: 2}} {
		x := mixtureOf(t, m, o, nil, built...)
		mix := x.r.NewMultiAdapter(x.slots...)
		x.compare(t, x.slots, texts, x.run(t, x.load(t, mix), mix, texts), false, nil)
	}
	x := newMixture(t, "../../testdata/lm/llama/model", backend.Options{Threads: 1, Precision: backend.BF16}, nil, built...)
	mix := x.r.NewMultiAdapter(x.slots...)
	got := x.run(t, x.load(t, mix), mix, texts)
	for _, text := range texts[:3] {
		want := x.says(t, x.slots[text.adapter], text.ids)
		require.LessOrEqual(t, apart(want, got[:len(want)]), 0.02)
		got = got[len(want):]
	}
}

// TestMixRefuses: what rows cannot have of their own is an error that names it.
func TestMixRefuses(t *testing.T) {
	x := newMixture(t, "../../testdata/encoders/mpnet", backend.Options{Threads: 1}, nil, `"target_modules":["q"],"modules_to_save":["relative_attention_bias"]`, `"target_modules":["q"],"lora_dropout":0.5`)
	_, err := x.r.Plan(x.r.NewMultiAdapter(x.slots[:1]...), x.spec())
	require.ErrorIs(t, err, lora.ErrUnsupported)
	require.ErrorContains(t, err, `adapter 0 of several in one batch has parameters of "encoder.relative_attention_bias", whose rows are no tokens`)
	spec := x.spec()
	_, err = x.r.Plan(x.r.NewMultiAdapter(x.slots[1:]...), spec)
	require.NoError(t, err)
	spec.Training = true
	_, err = x.r.Plan(x.r.NewMultiAdapter(x.slots[1:]...), spec)
	require.ErrorIs(t, err, lora.ErrUnsupported)
	require.ErrorContains(t, err, "dropout of adapter 0 of several in one batch")
}

// TestMixedClasses: the documents of a batch are classified by adapters with heads of
// their own.
func TestMixedClasses(t *testing.T) {
	for name, classes := range map[string]int{"llama": 2, "bert": 3} {
		m, err := model.OpenClassifier("../../testdata/encoders/"+name, model.UnnamedClasses(classes), 1)
		require.NoError(t, err)
		t.Cleanup(func() { m.Close() })
		dir := "../../testdata/tasks/classes-" + name + "/"
		x := mixtureOf(t, m, backend.Options{Threads: 1, BatchInvariant: true}, []string{dir + "init", dir + "final"},
			`"target_modules":["query","q_proj"],"r":5,"task_type":"SEQ_CLS"`)
		score := func(s *engine.Slot, b *data.Batch) []float32 {
			d, err := x.r.Plan(s, engine.Spec{Bounds: map[string]int{nn.Tokens: most, nn.Documents: 20}, Build: func(b *nn.Builder, p *graph.Program) {
				p.Result("scores", m.Build(b).Score(b))
			}})
			require.NoError(t, err)
			ps, err := x.r.Load(ctx, s, nil, d)
			require.NoError(t, err)
			defer x.r.Unload(ps...)
			m.Config.MarkRead(b)
			b.SetInts(nn.Types, make([]int32, len(b.Tokens())))
			require.NoError(t, ps[0].Run(ctx, s, b, b.Longest()))
			out := make([]float32, b.Rows()*classes)
			require.NoError(t, ps[0].Read(ctx, "scores", out))
			return out
		}
		var all data.Batch
		var adapters []int32
		var want []float32
		for i := range 12 {
			ids := []int32{7, 5, 11, 9, 8}[:2+i%3]
			own := i*5%(len(x.slots)+1) - 1
			slot := x.none
			if own >= 0 {
				slot = x.slots[own]
			}
			all.Add(ids, nil)
			adapters = append(adapters, slices.Repeat([]int32{int32(own)}, len(ids))...)
			var one data.Batch
			one.Add(ids, nil)
			want = append(want, score(slot, &one)...)
		}
		all.SetInts(nn.Adapters, adapters)
		require.Equal(t, want, score(x.r.NewMultiAdapter(x.slots...), &all), name)
		require.Len(t, slices.Compact(slices.Sorted(slices.Values(want))), len(want), name)
	}
}
