package host_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/backend/null"
	"github.com/lorafuse/lorafuse/graph"
	"github.com/lorafuse/lorafuse/internal/data"
	"github.com/lorafuse/lorafuse/internal/engine"
	"github.com/lorafuse/lorafuse/internal/host"
	"github.com/lorafuse/lorafuse/internal/ir"
	"github.com/lorafuse/lorafuse/internal/model"
	"github.com/lorafuse/lorafuse/internal/nn"
	"github.com/lorafuse/lorafuse/lora"
)

const llama = "../../testdata/lm/llama/"

var ctx = context.Background()

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func openModel(t testing.TB) *model.Model {
	m, err := model.Open(llama + "model")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, m.Close()) })
	return m
}

func openCPU(t testing.TB) backend.Device {
	dev, err := backend.Open(backend.CPU, backend.Options{Threads: 1})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, dev.Close()) })
	return dev
}

func newSlot(t require.TestingT, h *host.Host, adapter string) *engine.Slot {
	var state *lora.State
	if m := h.Model(); adapter != "" {
		var err error
		state, err = lora.LoadState(llama+"adapters/"+adapter, m, m.Config.ModelType, m.Modules())
		require.NoError(t, err)
	}
	s, err := h.NewSlot(state)
	require.NoError(t, err)
	return s
}

// spec is a program of the loss of texts of at most so many tokens. It counts its plans.
func spec(h *host.Host, tokens int, plans *int) engine.Spec {
	return engine.Spec{Name: "loss", Bounds: map[string]int{nn.Tokens: tokens}, Build: func(b *nn.Builder, p *graph.Program) {
		*plans++
		out := h.Model().Build(b)
		p.Result("loss", out.Loss(b, model.NextToken))
		p.Result("hidden", out.Hidden[1])
	}}
}

func batch(n int) *data.Batch {
	var b data.Batch
	ids := slices.Repeat([]int32{7, 5, 11, 2}, 16)[:n]
	b.Add(ids, append(slices.Clone(ids[1:]), 3))
	return &b
}

// A program is planned once for each name, bounds and shape of the slot.
func TestPrograms(t *testing.T) {
	h := host.Open(openCPU(t), openModel(t))
	defer h.Close()
	plans := 0
	bare, again, lora, dora := newSlot(t, h, ""), newSlot(t, h, ""), newSlot(t, h, "lora"), newSlot(t, h, "dora")
	for _, s := range []*engine.Slot{bare, again, lora, dora} {
		defer s.Free()
	}
	var first *engine.Program
	for i, c := range []struct {
		slot  *engine.Slot
		spec  engine.Spec
		plans int
	}{
		{bare, spec(h, 9, &plans), 1},
		{again, spec(h, 9, &plans), 1},
		{bare, spec(h, 10, &plans), 2},
		{lora, spec(h, 9, &plans), 3},
		{dora, spec(h, 9, &plans), 4},
		{lora, spec(h, 9, &plans), 4},
		{bare, spec(h, 9, &plans), 4},
	} {
		p, err := h.Program(ctx, c.slot, c.spec)
		require.NoError(t, err)
		require.Equal(t, c.plans, plans, i)
		if i == 0 {
			first = p
		}
	}
	p, err := h.Program(ctx, bare, spec(h, 9, &plans))
	require.NoError(t, err)
	require.True(t, first == p)
	training := spec(h, 9, &plans)
	training.Training = true
	ps, err := h.Programs(ctx, bare, spec(h, 9, &plans), training, spec(h, 12, &plans), spec(h, 11, &plans))
	require.NoError(t, err)
	require.Equal(t, 7, plans)
	require.True(t, first == ps[0] && first == ps[1], "without dropout, a program of training is compiled once")
	require.True(t, ps[2].SharesArena(ps[3]))

	nameless := spec(h, 9, &plans)
	nameless.Name = ""
	_, err = h.Program(ctx, bare, nameless)
	require.ErrorIs(t, err, host.ErrName)
	require.Zero(t, testing.AllocsPerRun(10, func() {
		if _, err := h.Program(ctx, bare, training); err != nil {
			t.Error(err)
		}
	}), "a program that is cached")
}

// Results have the size of the last run, and names that are known.
func TestResults(t *testing.T) {
	h := host.Open(openCPU(t), openModel(t))
	defer h.Close()
	s, plans := newSlot(t, h, "lora"), 0
	defer s.Free()
	size := h.Model().Config.HiddenSize
	var want []float32
	for _, most := range []int{12, 9} { // results of one name and two sizes
		for _, n := range []int{3, 8, 5} {
			r, err := h.Compute(ctx, s, spec(h, most, &plans), batch(n), n)
			require.NoError(t, err)
			hidden, err := r.Get(ctx, "hidden")
			require.NoError(t, err)
			require.Len(t, hidden, n*size)
			loss, err := r.Get(ctx, "loss")
			require.NoError(t, err)
			require.Len(t, loss, 1)
			if n == 5 && want != nil {
				require.Equal(t, want, append(hidden, loss...))
			}
			if n == 5 {
				want = append(hidden, loss...)
			}
			_, err = r.Get(ctx, "los")
			require.ErrorIs(t, err, engine.ErrResult)
			require.ErrorContains(t, err, `"loss"`)
		}
	}
	_, err := h.Compute(ctx, s, spec(h, 9, &plans), batch(10), 10)
	require.ErrorIs(t, err, nn.ErrInput)
}

// Programs that were used longest ago go where memory is short; those that fit into an arena
// that is there cost none. Nothing is left after Close.
func TestBudget(t *testing.T) {
	var dev null.Device
	m := openModel(t)
	h := host.Open(&dev, m)
	s, plans := newSlot(t, h, ""), 0
	load := func(tokens ...int) (ps []*engine.Program) {
		for _, n := range tokens {
			p, err := h.Program(ctx, s, spec(h, n, &plans))
			require.NoError(t, err)
			ps = append(ps, p)
		}
		return ps
	}
	ps := load(16, 8, 4)
	require.True(t, ps[0].SharesArena(ps[1]) && ps[0].SharesArena(ps[2]))
	require.Equal(t, ps[0].Arena(), h.Cached())
	more := load(32)[0]
	require.Equal(t, ps[0].Arena()+more.Arena(), h.Cached(), "both are within the budget")
	require.Equal(t, 4, plans)

	h.SetBudget(1)
	load(16) // which is used last
	require.Equal(t, 4, plans)
	largest := load(64)[0]
	require.Equal(t, largest.Arena(), h.Cached(), "there is room for none beside it")
	require.Equal(t, 1, h.Len())
	load(4, 32, 64)
	require.Equal(t, 7, plans)
	require.Equal(t, largest.Arena(), h.Cached())

	h.SetBudget(1 << 30)
	for n := 1; n <= 70; n++ {
		load(n)
	}
	require.Equal(t, 64, h.Len())
	h.Close()
	h.Close()
	s.Free()
	now, _ := dev.Held()
	require.Zero(t, now)
}

// Where the device has too little memory, what is cached makes room.
func TestOutOfMemory(t *testing.T) {
	m := openModel(t)
	need := func(memory int64, tokens ...int) (int64, error) {
		dev := null.Device{Memory: memory}
		h := host.Open(&dev, m)
		defer h.Close()
		s, plans := newSlot(t, h, ""), 0
		defer s.Free()
		for _, n := range tokens {
			if _, err := h.Program(ctx, s, spec(h, n, &plans)); err != nil {
				return 0, err
			}
		}
		_, peak := dev.Held()
		return peak, nil
	}
	one, err := need(0, 64)
	require.NoError(t, err)
	both, err := need(0, 48, 64)
	require.NoError(t, err)
	require.Less(t, one, both)
	_, err = need(one, 48, 64)
	require.NoError(t, err)
	_, err = need(one-1, 48, 64)
	require.ErrorIs(t, err, backend.ErrOutOfMemory)
}

// Hosts beside each other, and goroutines that take turns on one, compute what one alone
// computes, while programs come and go.
func TestTurns(t *testing.T) {
	first := host.Open(openCPU(t), openModel(t))
	defer first.Close()
	compute := func(t require.TestingT, h *host.Host, s *engine.Slot, most, n int) []float32 {
		h.Lock()
		defer h.Unlock()
		plans := 0
		r, err := h.Compute(ctx, s, spec(h, most, &plans), batch(n), n)
		require.NoError(t, err)
		x, err := r.Get(ctx, "hidden")
		require.NoError(t, err)
		return x
	}
	want := map[string][]float32{}
	for _, adapter := range []string{"", "lora", "dora"} {
		s := newSlot(t, first, adapter)
		for n := 1; n <= 9; n++ {
			want[fmt.Sprint(adapter, n)] = compute(t, first, s, 9, n)
		}
		s.Free()
	}
	rapid.Check(t, func(t *rapid.T) {
		var launches, over atomic.Int64
		aside := first.Beside(func(context.Context) func() {
			launches.Add(1)
			return func() { over.Add(1) }
		})
		defer aside.Close()
		aside.SetBudget(rapid.SampledFrom([]int64{1, 1 << 20}).Draw(t, "budget"))
		var wait sync.WaitGroup
		for i := range rapid.IntRange(2, 4).Draw(t, "goroutines") {
			h := rapid.SampledFrom([]*host.Host{first, aside, aside}).Draw(t, "host")
			adapter := rapid.SampledFrom([]string{"", "lora", "dora"}).Draw(t, "adapter")
			sizes := rapid.SliceOfN(rapid.IntRange(1, 9), 1, 4).Draw(t, "sizes")
			h.Lock()
			s := newSlot(t, h, adapter)
			h.Unlock()
			wait.Go(func() {
				for j, n := range sizes {
					assert.Equal(t, want[fmt.Sprint(adapter, n)], compute(t, h, s, 9+(i+j)%3, n))
				}
				h.Lock()
				s.Free()
				h.Unlock()
			})
		}
		wait.Wait()
		require.Equal(t, launches.Load(), over.Load())
	})
}

// A host that gives way calls before each of its launches, with the context of its run.
func TestGivesWay(t *testing.T) {
	first := host.Open(openCPU(t), openModel(t))
	defer first.Close()
	type key struct{}
	launches := 0
	aside := first.Beside(func(ctx context.Context) func() {
		launches++
		require.Equal(t, "run", ctx.Value(key{}))
		return func() {}
	})
	defer aside.Close()
	for _, h := range []*host.Host{first, aside} {
		s, plans := newSlot(t, h, ""), 0
		_, err := h.Compute(context.WithValue(ctx, key{}, "run"), s, spec(h, 9, &plans), batch(3), 3)
		require.NoError(t, err)
		require.NoError(t, h.Wait())
		require.Equal(t, h == aside, launches > 0)
		s.Free()
	}
}

// Programs are unloaded with the last attached slot that they fit.
func TestDetach(t *testing.T) {
	h := host.Open(openCPU(t), openModel(t))
	defer h.Close()
	plans := 0
	state, err := lora.LoadState(llama+"adapters/lora", h.Model(), h.Model().Config.ModelType, h.Model().Modules())
	require.NoError(t, err)
	one, err := h.Attach(state)
	require.NoError(t, err)
	two, err := h.Attach(state)
	require.NoError(t, err)
	_, err = h.Program(ctx, one, spec(h, 9, &plans))
	require.NoError(t, err)
	h.Detach(one)
	h.Detach(one)
	require.Equal(t, 1, h.Len())
	require.Zero(t, one.Bytes())
	h.Detach(two)
	require.Zero(t, h.Len())
}

// Held programs are shared by slots of one shape, stay in spite of the budget, and are
// unloaded with the last slot that they are held for.
func TestHold(t *testing.T) {
	var dev null.Device
	h := host.Open(&dev, openModel(t))
	defer h.Close()
	h.SetBudget(1)
	state, err := lora.LoadState(llama+"adapters/lora", h.Model(), h.Model().Config.ModelType, h.Model().Modules())
	require.NoError(t, err)
	plans, slots := 0, [2]*engine.Slot{}
	hold := func(i int, s engine.Spec) (*engine.Program, error) {
		d, err := h.Plan(slots[i], s)
		require.NoError(t, err)
		ps, err := h.Hold(ctx, engine.Placed{Slot: slots[i], Draft: d})
		if err != nil {
			return nil, err
		}
		return ps[0], nil
	}
	var held *engine.Program
	for i := range slots {
		slots[i], err = h.NewSlot(state)
		require.NoError(t, err)
		p, err := hold(i, spec(h, 9, &plans))
		require.NoError(t, err)
		if i == 0 {
			held = p
		}
		require.True(t, held == p, "a slot of the same shape shares the program")
	}
	_, err = h.Program(ctx, slots[0], spec(h, 64, &plans))
	require.NoError(t, err)
	other := spec(h, 9, &plans)
	build := other.Build
	other.Build = func(b *nn.Builder, p *graph.Program) { build(b, p); p.Result("more", b.G.Const(1, ir.Static(1))) }
	_, err = hold(0, other)
	require.ErrorIs(t, err, host.ErrName, "another program has this name")
	require.Equal(t, 2, h.Len())
	_, err = h.Program(ctx, slots[1], spec(h, 65, &plans))
	require.NoError(t, err)
	require.Equal(t, 2, h.Len(), "the program that is not held made room")

	for i := range slots {
		p, err := h.Program(ctx, slots[1], spec(h, 9, &plans))
		require.NoError(t, err)
		require.True(t, held == p)
		h.Detach(slots[i])
	}
	require.Zero(t, h.Len())
	h.Close()
	now, _ := dev.Held()
	require.Zero(t, now)
}

// TestPrepare: a program that was prepared is cached once it is kept, and neither planned nor
// compiled again; one that was dropped is not.
func TestPrepare(t *testing.T) {
	h := host.Open(openCPU(t), openModel(t))
	defer h.Close()
	plans := 0
	s := newSlot(t, h, "lora")
	defer s.Free()
	want, err := h.Compute(ctx, s, spec(h, 9, &plans), batch(8), 8)
	require.NoError(t, err)
	hidden, err := want.Get(ctx, "hidden")
	require.NoError(t, err)
	h.UnloadFunc(func(string, *engine.Program) bool { return true })

	dropped, err := h.Prepare(s, spec(h, 9, &plans))
	require.NoError(t, err)
	dropped.Drop()
	kept, err := h.Prepare(s, spec(h, 9, &plans))
	require.NoError(t, err)
	require.NoError(t, h.Keep(ctx, s, kept))
	require.Equal(t, 3, plans)
	got, err := h.Compute(ctx, s, spec(h, 9, &plans), batch(8), 8)
	require.NoError(t, err)
	again, err := got.Get(ctx, "hidden")
	require.NoError(t, err)
	require.Equal(t, hidden, again)
	require.Equal(t, 3, plans)
	(*engine.Draft)(nil).Drop()
}
