package engine_test

import (
	"context"
	"maps"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/backend"
	_ "github.com/lorafuse/lorafuse/backend/cpu"
	"github.com/lorafuse/lorafuse/backend/null"
	"github.com/lorafuse/lorafuse/dev/testdevice"
	"github.com/lorafuse/lorafuse/graph"
	"github.com/lorafuse/lorafuse/internal/data"
	"github.com/lorafuse/lorafuse/internal/engine"
	"github.com/lorafuse/lorafuse/internal/model"
	"github.com/lorafuse/lorafuse/internal/nn"
	"github.com/lorafuse/lorafuse/lora"
	"github.com/lorafuse/lorafuse/tensor"
)

const llama = "../../testdata/lm/llama/"

func open(t *testing.T, dir string) (backend.Device, *model.Model) {
	dev, err := backend.Open(backend.CPU, backend.Options{Threads: 1})
	require.NoError(t, err)
	t.Cleanup(func() { dev.Close() })
	m, err := model.Open(dir)
	require.NoError(t, err)
	t.Cleanup(func() { m.Close() })
	return dev, m
}

// adapter is one of llama's, with its values times a factor.
func adapter(t *testing.T, m *model.Model, name string, factor float32) *lora.State {
	s, err := lora.LoadState(llama+"adapters/"+name, m, m.Config.ModelType, m.Modules())
	require.NoError(t, err)
	for _, v := range s.Values {
		for i := range v {
			v[i] *= factor
		}
	}
	return s
}

var ctx = context.Background()

// loss is the program of the loss of at most 9 tokens.
func loss(m *model.Model) engine.Spec {
	return engine.Spec{Bounds: map[string]int{nn.Tokens: 9}, Build: func(b *nn.Builder, p *graph.Program) {
		p.Result("loss", m.Build(b).Loss(b, model.NextToken))
	}}
}

func batch(n int) *data.Batch {
	var b data.Batch
	ids := slices.Repeat([]int32{7, 5, 11}, 3)[:n]
	b.Add(ids, append(slices.Clone(ids[1:]), 3))
	return &b
}

// measure runs a program of the loss with a slot.
func measure(t *testing.T, p *engine.Program, s *engine.Slot) float32 {
	require.NoError(t, p.Run(t.Context(), s, batch(9), 9))
	var x [1]float32
	require.NoError(t, p.Read(t.Context(), "loss", x[:]))
	return x[0]
}

// TestSlotsTakeTurns: adapters of one shape lie side by side and share a program, and
// each gives what it gives alone, with what is made of its parameters made once.
func TestSlotsTakeTurns(t *testing.T) {
	for _, name := range []string{"lora", "dora"} {
		dev, m := open(t, llama+"model")
		alone := map[float32]float32{}
		for _, factor := range []float32{1, 2, 3} {
			r := engine.New(dev, m)
			s, err := r.NewSlot(adapter(t, m, name, factor))
			require.NoError(t, err)
			d, err := r.Plan(s, loss(m))
			require.NoError(t, err)
			ps, err := r.Load(t.Context(), s, nil, d)
			require.NoError(t, err)
			alone[factor] = measure(t, ps[0], s)
			r.Close()
			s.Free()
		}
		require.Len(t, slices.Compact(slices.Sorted(maps.Values(alone))), 3)

		r, slots := engine.New(dev, m), map[float32]*engine.Slot{}
		var ps []*engine.Program
		base := 0
		for factor := range alone {
			s, err := r.NewSlot(adapter(t, m, name, factor))
			require.NoError(t, err)
			d, err := r.Plan(s, loss(m))
			require.NoError(t, err)
			now, err := r.Load(t.Context(), s, ps, d)
			require.NoError(t, err)
			require.True(t, ps == nil || now[0] == ps[0], "the program is shared")
			require.True(t, base == 0 || base == r.Bytes(), "and so are the weights")
			ps, slots[factor], base = now, s, r.Bytes()
		}
		for range 2 {
			for factor, s := range slots {
				require.Equal(t, alone[factor], measure(t, ps[0], s))
			}
		}
		one := slots[1]
		key := slices.Sorted(maps.Keys(one.State().Values))[0]
		two := adapter(t, m, name, 2)
		for key, v := range two.Values {
			require.NoError(t, one.Set(t.Context(), key, v))
		}
		one.Changed()
		require.Equal(t, alone[2], measure(t, ps[0], one), "what is made of parameters is made again")
		require.ErrorContains(t, one.Set(t.Context(), key, two.Values[key][1:]), "which has not so many")
		r.Close()
		for _, s := range slots {
			require.Positive(t, s.Bytes())
			s.Free()
		}
	}
}

// TestRunsUnderWay: runs that are given before any of them is done each have their
// inputs, and the error of each comes to who waits.
func TestRunsUnderWay(t *testing.T) {
	_, m := open(t, llama+"model")
	dev := testdevice.NewLazy(t)
	r := engine.New(dev, m)
	defer r.Close()
	s, err := r.NewSlot(nil)
	require.NoError(t, err)
	sum := engine.Spec{Bounds: map[string]int{nn.Tokens: 9}, Build: func(b *nn.Builder, p *graph.Program) {
		p.Accumulate("sum", m.Build(b).Loss(b, model.NextToken))
	}}
	one, err := r.Plan(s, loss(m))
	require.NoError(t, err)
	all, err := r.Plan(s, sum)
	require.NoError(t, err)
	ps, err := r.Load(t.Context(), s, nil, one, all)
	require.NoError(t, err)
	var x [1]float32
	want := float32(0)
	for n := 3; n <= 9; n++ {
		require.NoError(t, ps[0].Run(t.Context(), s, batch(n), n))
		require.NoError(t, ps[0].Read(t.Context(), "loss", x[:]))
		want += x[0]
	}
	for n := 3; n <= 9; n++ { // more than may be under way
		require.NoError(t, ps[1].Run(t.Context(), s, batch(n), n))
	}
	require.NoError(t, r.Commit())
	require.NoError(t, ps[1].Read(t.Context(), "sum", x[:]))
	require.Equal(t, want, x[0])

	for wrong := range 3 {
		for i := range 3 {
			b := batch(9)
			if i == wrong {
				b.Tokens()[4] = 1 << 20
			}
			require.NoError(t, ps[1].Run(t.Context(), s, b, 9))
		}
		require.NoError(t, ps[0].Run(t.Context(), s, batch(9), 9))
		require.ErrorContains(t, ps[0].Read(t.Context(), "loss", x[:]), "id 1048576 at 4")
		require.NoError(t, ps[0].Read(t.Context(), "loss", x[:]), "it is said once")
	}
	for i := range backend.MaxInFlight {
		b := batch(9)
		b.Tokens()[i] = -1
		require.NoError(t, ps[1].Run(t.Context(), s, b, 9))
	}
	require.ErrorContains(t, ps[1].Run(t.Context(), s, batch(9), 9), "id -1 at 0", "a run waits for the first where there are as many as may be")
	require.NoError(t, ps[1].Read(t.Context(), "sum", x[:]), "nothing is under way after an error")
}

// stopping ends once it was asked so often.
type stopping struct {
	context.Context
	left int
}

func (s *stopping) Err() error {
	if s.left--; s.left < 0 {
		return context.Canceled
	}
	return nil
}

// TestWhatWasCutOffIsMadeAgain: what is made of parameters alone is made again where
// that was stopped.
func TestWhatWasCutOffIsMadeAgain(t *testing.T) {
	dev, m := open(t, llama+"model")
	want := float32(0)
	for _, dev := range []backend.Device{dev, testdevice.NewLazy(t)} {
		for left := range 4 {
			r := engine.New(dev, m)
			s, err := r.NewSlot(adapter(t, m, "dora", 1))
			require.NoError(t, err)
			d, err := r.Plan(s, loss(m))
			require.NoError(t, err)
			ps, err := r.Load(t.Context(), s, nil, d)
			require.NoError(t, err)
			if want == 0 {
				want = measure(t, ps[0], s)
				s.Changed()
			}
			var x [1]float32
			err = ps[0].Run(&stopping{t.Context(), left}, s, batch(9), 9)
			if err == nil {
				err = ps[0].Read(t.Context(), "loss", x[:])
			}
			require.ErrorIs(t, err, context.Canceled)
			require.Equal(t, want, measure(t, ps[0], s))
			r.Close()
			s.Free()
		}
	}
}

// drawn is a batch and the keys that its tokens draw with.
type drawn struct {
	*data.Batch
	key []uint32
}

func (d drawn) Array(name string) ([]byte, bool) {
	if name == nn.RandomKey {
		return tensor.BytesOf(d.key), true
	}
	return d.Batch.Array(name)
}

// TestDropoutInCompany: a run that is a part of a batch drops what it drops alone,
// and a run alone draws the same by one key and by a key for each token.
func TestDropoutInCompany(t *testing.T) {
	dev, m := open(t, llama+"model")
	state := adapter(t, m, "lora", 1)
	for i := range state.Placement.Targets {
		state.Placement.Targets[i].Dropout = 0.4
	}
	r := engine.New(dev, m)
	defer r.Close()
	s, err := r.NewSlot(state)
	require.NoError(t, err)
	defer s.Free()
	hidden := func(rowKeys bool, given drawn) []float32 {
		n := len(given.Tokens())
		d, err := r.Plan(s, engine.Spec{Bounds: map[string]int{nn.Tokens: 40}, Training: true, RowKeys: rowKeys, Build: func(b *nn.Builder, p *graph.Program) {
			p.Result("hidden", m.Build(b).Hidden[m.Config.Layers])
		}})
		require.NoError(t, err)
		ps, err := r.Load(t.Context(), s, nil, d)
		require.NoError(t, err)
		defer r.Unload(ps...)
		require.NoError(t, ps[0].Run(t.Context(), s, given, given.Longest()))
		x := make([]float32, n*m.Config.HiddenSize)
		require.NoError(t, ps[0].Read(t.Context(), "hidden", x))
		return x
	}
	// Runs of two and one document, with keys of their own.
	runs := [][]int{{9, 4}, {7}}
	keys := [][]uint32{{5, 0, 1}, {5, 0, 2}}
	both := drawn{Batch: &data.Batch{}}
	var alone [][]float32
	for i, documents := range runs {
		one, by := drawn{&data.Batch{}, keys[i]}, drawn{&data.Batch{}, nil}
		for _, n := range documents {
			ids := slices.Repeat([]int32{7, 5, 11}, 3)[:n]
			one.Add(ids, nil)
			by.Add(ids, nil)
			both.Add(ids, nil)
		}
		for row := range one.Tokens() {
			by.key = append(append(by.key, keys[i]...), uint32(row))
		}
		both.key = append(both.key, by.key...)
		alone = append(alone, hidden(false, one))
		require.Equal(t, alone[i], hidden(true, by), "alone, by either")
	}
	require.NotEqual(t, alone[0][:7*m.Config.HiddenSize], alone[1])
	want := slices.Concat(alone...)
	got := hidden(true, both)
	for i := range want {
		// Other masks would be far off; products of more rows may round otherwise.
		require.InDelta(t, want[i], got[i], 1e-5*float64(1+max(want[i], -want[i])))
	}
}

// TestInputs: what a run is given must be what the model reads.
func TestInputs(t *testing.T) {
	dev, m := open(t, llama+"model")
	r := engine.New(dev, m)
	defer r.Close()
	s, err := r.NewSlot(nil)
	require.NoError(t, err)
	d, err := r.Plan(s, loss(m))
	require.NoError(t, err)
	ps, err := r.Load(t.Context(), s, nil, d)
	require.NoError(t, err)
	for says, change := range map[string]func(*data.Batch){
		`"labels" has 8 rows where the arrays before it have 9`: func(b *data.Batch) { b.SetInts(nn.Labels, make([]int32, 8)) },
		`tokens = 10, expected 1 to 9`:                          func(b *data.Batch) { b.SetInts(nn.Tokens, make([]int32, 10)) },
		`tokens = 0, expected 1 to 9`:                           func(b *data.Batch) { b.SetInts(nn.Tokens, nil) },
	} {
		b := batch(9)
		change(b)
		err := ps[0].Run(t.Context(), s, b, 9)
		require.ErrorIs(t, err, nn.ErrInput)
		require.ErrorContains(t, err, says)
	}
	err = ps[0].Run(t.Context(), s, &data.Batch{}, 9)
	require.ErrorIs(t, err, nn.ErrInput)
	require.ErrorContains(t, err, `the model reads "tokens" i32[v1], which it is not given`)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, ps[0].Run(ended, s, batch(9), 9), context.Canceled)
}

// TestNothingIsLeft: a runtime gives back all memory, also after a failure.
func TestNothingIsLeft(t *testing.T) {
	_, m := open(t, llama+"model")
	most := int64(0)
	for _, memory := range []int64{0, -1, -1 << 12, -1 << 16} {
		dev := &null.Device{}
		if memory != 0 {
			dev.Memory = most + memory
		}
		r := engine.New(dev, m)
		s, err := r.NewSlot(adapter(t, m, "dora", 1))
		require.NoError(t, err)
		small, err := r.Plan(s, loss(m))
		require.NoError(t, err)
		spec := loss(m)
		spec.Cache = r.NewCache(64)
		large, err := r.Plan(s, spec)
		require.NoError(t, err)
		need, err := r.Need(small, large)
		require.NoError(t, err)
		require.EqualValues(t, max(small.Program.Arena, large.Program.Arena), need.Arena)
		ps, err := r.Load(t.Context(), s, nil, small, large)
		if memory != 0 {
			require.ErrorIs(t, err, backend.ErrOutOfMemory)
		} else {
			require.NoError(t, err)
			require.NoError(t, ps[0].Run(t.Context(), s, batch(9), 9))
			_, most = dev.Held()
		}
		r.Close()
		s.Free()
		spec.Cache.Free()
		held, _ := dev.Held()
		require.Zero(t, held, "of %d", most)
	}
}
