package engine_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/backend/null"
	"github.com/lorafuse/lorafuse/graph"
	"github.com/lorafuse/lorafuse/internal/engine"
	"github.com/lorafuse/lorafuse/internal/ir"
	"github.com/lorafuse/lorafuse/internal/model"
	"github.com/lorafuse/lorafuse/internal/nn"
	"github.com/lorafuse/lorafuse/internal/quant"
)

// learning is a program of what a training step computes: the loss of at most 9 tokens and
// the gradients of all that is trained, one behind the other.
func learning(m *model.Model) engine.Spec {
	return engine.Spec{Bounds: map[string]int{nn.Tokens: 9}, Training: true, Build: func(b *nn.Builder, p *graph.Program) {
		loss := m.Build(b).Loss(b, model.NextToken)
		var params, all []graph.Tensor
		for _, t := range b.Trained() {
			params = append(params, b.Train(t.Name, t.Shape...))
		}
		for _, g := range b.G.GradientsWith(loss, params, ir.GradOptions{}) {
			all = append(all, g.Reshape(ir.Static(g.Type().Shape.Elements(nil))))
		}
		p.Result("gradients", graph.Concat(0, append(all, loss.Reshape(ir.Static(1)))...))
	}}
}

// learner computes gradients of an adapter, with a program of its own each time.
type learner struct {
	r *engine.Runtime
	s *engine.Slot
}

func (l learner) gradients(ctx context.Context, spec engine.Spec) ([]float32, error) {
	d, err := l.r.Plan(l.s, spec)
	if err != nil {
		return nil, err
	}
	ps, err := l.r.Load(ctx, l.s, nil, d)
	if err != nil {
		return nil, err
	}
	defer l.r.Unload(ps...)
	b := batch(9)
	b.StepTokens = 8
	var out []float32
	for range 2 {
		out = make([]float32, d.Program.Args[d.Program.ArgIndex("gradients")].Bytes(nil)/4)
		if err := ps[0].Run(ctx, l.s, b, 9); err != nil {
			return nil, err
		}
		if err := ps[0].Read(ctx, "gradients", out); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// TestBeside: runtimes side by side, each in a goroutine of its own, compute what they
// compute alone, to the bit, while both compile and free programs.
func TestBeside(t *testing.T) {
	for i, c := range []struct {
		base     string
		quantize quant.Method
		exact    bool
	}{
		{"../../testdata/peft/base/small-llama", quant.None, true},
		{"../../testdata/peft/base/small-llama", quant.None, false},
		{"../../testdata/peft/base/small-qwen2", quant.Int8, true},
		{"../../testdata/lm/gemma3/model", quant.Bit4, false},
		{"../../testdata/extra/qwen3-moe", quant.None, false},
	} {
		t.Run(fmt.Sprintf("%s %v %v", filepath.Base(c.base), c.quantize, c.exact), func(t *testing.T) {
			m, err := model.Open(c.base)
			require.NoError(t, err)
			defer m.Close()
			require.NoError(t, m.Quantize(c.quantize, nil))
			x := mixtureOf(t, m, backend.Options{Threads: 1 + (i+1)%3, BatchInvariant: c.exact}, nil,
				`"r":4,"target_modules":["q_proj","o_proj"]`, `"r":9,"target_modules":["v_proj"],"use_dora":true`)
			x.dev.(backend.Memory).SetPack(backend.PackAlways, 0)
			texts := []text{{[]int32{3, 1, 4}, 0}, {[]int32{1, 5}, 1}, {[]int32{9}, -1}}
			slots := x.slots
			serve := func(t require.TestingT) []float32 {
				mix := x.r.NewMultiAdapter(slots...)
				p := x.load(t, mix)
				defer x.r.Unload(p)
				return x.run(t, p, mix, texts)
			}
			want := serve(t)

			var beside []learner
			var wants [][]float32
			weights := engine.New(x.dev, m) // of which none is there yet
			for i := range 2 {
				s, err := x.r.NewSlot(x.state(t, `"r":5,"target_modules":["q_proj","v_proj"]`, uint64(i)))
				require.NoError(t, err)
				defer s.Free()
				alone, err := learner{x.r, s}.gradients(t.Context(), learning(m))
				require.NoError(t, err)
				wants = append(wants, alone)
				r := weights.Beside(nil)
				defer r.Close()
				beside = append(beside, learner{r, s})
			}
			require.NotEqual(t, wants[0], wants[1])

			var all sync.WaitGroup
			for i, l := range beside {
				all.Go(func() {
					for range 20 {
						g, err := l.gradients(t.Context(), learning(m))
						assert.NoError(t, err)
						assert.True(t, slices.Equal(wants[i], g))
					}
				})
			}
			x.r.Close()
			x.r = weights
			for range 20 {
				require.True(t, slices.Equal(want, serve(t)))
			}
			all.Wait()
		})
	}
}

// TestBesideMemory: weights are on the device once, quantised ones too, until the last of
// the runtimes that have them is closed.
func TestBesideMemory(t *testing.T) {
	m, err := model.Open(llama + "model")
	require.NoError(t, err)
	defer m.Close()
	require.NoError(t, m.Quantize(quant.Int8, nil))
	dev := &null.Device{}
	load := func(r *engine.Runtime) *engine.Program {
		s, err := r.NewSlot(nil)
		require.NoError(t, err)
		d, err := r.Plan(s, loss(m))
		require.NoError(t, err)
		ps, err := r.Load(t.Context(), s, nil, d)
		require.NoError(t, err)
		return ps[0]
	}
	held := func() int64 { now, _ := dev.Held(); return now }
	r := engine.New(dev, m)
	p := load(r)
	one := held()
	b := r.Beside(nil)
	q := load(b)
	both := held()
	own := both - one
	require.Less(t, own, one/4, "what is not shared")
	require.Equal(t, r.Bytes(), b.Bytes())
	b.Unload(q)
	b.Close()
	b.Close()
	require.Equal(t, one, held())

	b = r.Beside(nil)
	load(b)
	r.Unload(p)
	r.Close()
	require.Equal(t, one, held(), "the weights are there for the other")
	b.Close()
	require.Zero(t, held())
}

// TestBesideAtOnce: runtimes that bring the same weights to a device at the same time have
// them once.
func TestBesideAtOnce(t *testing.T) {
	m, err := model.Open(llama + "model")
	require.NoError(t, err)
	defer m.Close()
	require.NoError(t, m.Quantize(quant.Bit4, nil))
	for range 10 {
		var dev null.Device
		r := engine.New(&dev, m)
		var all sync.WaitGroup
		begin := make(chan struct{})
		sizes := make([]int, 4)
		for i := range sizes {
			b := r.Beside(nil)
			defer b.Close()
			s, err := b.NewSlot(nil)
			require.NoError(t, err)
			d, err := b.Plan(s, loss(m))
			require.NoError(t, err)
			all.Go(func() {
				<-begin
				_, err := b.Load(t.Context(), s, nil, d)
				assert.NoError(t, err)
				sizes[i] = b.Bytes()
			})
		}
		close(begin)
		all.Wait()
		require.Equal(t, slices.Repeat(sizes[:1], len(sizes)), sizes)
		now, _ := dev.Held()
		require.Less(t, int(now), 2*r.Bytes())
		r.Close()
	}
}

// breaking is a device whose uploads fail while it is told to.
type breaking struct {
	backend.Device
	backend.Memory
	fails atomic.Bool
}

var errBroken = errors.New("broken")

func (d *breaking) Upload(b backend.Buffer, off int, src []byte) (backend.Fence, error) {
	if d.fails.Load() {
		return nil, errBroken
	}
	return d.Device.Upload(b, off, src)
}

// TestBesideFails: weights that could not be brought to the device are no weights for
// another runtime, which brings them itself.
func TestBesideFails(t *testing.T) {
	cpu, m := open(t, llama+"model")
	require.NoError(t, m.Quantize(quant.Int8, nil))
	dev := &breaking{Device: cpu, Memory: cpu.(backend.Memory)}
	dev.fails.Store(true)
	r := engine.New(dev, m)
	defer r.Close()
	s, err := r.NewSlot(nil)
	require.NoError(t, err)
	d, err := r.Plan(s, loss(m))
	require.NoError(t, err)
	b := r.Beside(nil)
	_, err = b.Load(t.Context(), s, nil, d)
	require.ErrorIs(t, err, errBroken)
	b.Close()
	dev.fails.Store(false)
	ps, err := r.Load(t.Context(), s, nil, d)
	require.NoError(t, err)

	alone := engine.New(cpu, m)
	defer alone.Close()
	d, err = alone.Plan(s, loss(m))
	require.NoError(t, err)
	qs, err := alone.Load(t.Context(), s, nil, d)
	require.NoError(t, err)
	require.Equal(t, measure(t, qs[0], s), measure(t, ps[0], s))
}
