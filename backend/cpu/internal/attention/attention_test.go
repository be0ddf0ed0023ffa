package attention

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestHeadSizesAndGroups(t *testing.T) {
	e := newEngine(t, 2)
	for _, dim := range []int{1, 7, 8, 16, 32, 64, 80, 96, 128, 256} {
		for _, heads := range [][2]int{{1, 1}, {3, 1}, {4, 2}, {2, 2}} {
			t.Run(fmt.Sprintf("dim %d heads %v", dim, heads), func(t *testing.T) {
				p := newProblem(uint64(dim), causal(heads[0], heads[1], dim, 37, 9, 75))
				p.requireEqualsReference(t, p.run(t, e))
			})
		}
	}
}

func TestLongSequences(t *testing.T) {
	e := newEngine(t, 2)
	for _, window := range []int{0, 1, 50, 128, 200} {
		s := causal(2, 1, 16, 400)
		s.Window = window
		p := newProblem(1, s)
		p.requireEqualsReference(t, p.run(t, e))
	}
}

// Any intervals: empty, overlapping in any order, windows.
func TestRandomIntervals(t *testing.T) {
	e := newEngine(t, 2)
	rapid.Check(t, func(rt *rapid.T) {
		s := Spec{
			KVHeads: rapid.IntRange(1, 2).Draw(rt, "key heads"),
			HeadDim: rapid.SampledFrom([]int{4, 8, 20}).Draw(rt, "dim"),
			Keys:    rapid.IntRange(1, 300).Draw(rt, "keys"),
			Window:  rapid.SampledFrom([]int{0, 0, 1, 5, 140}).Draw(rt, "window"),
		}
		s.QHeads = s.KVHeads * rapid.IntRange(1, 3).Draw(rt, "group")
		n := rapid.IntRange(0, 150).Draw(rt, "queries")
		width := rapid.IntRange(1, s.Keys).Draw(rt, "width")
		r := rand.New(rand.NewPCG(rapid.Uint64().Draw(rt, "seed"), 0))
		for range n {
			lo := r.IntN(s.Keys + 1)
			s.Lo = append(s.Lo, int32(lo))
			s.Hi = append(s.Hi, int32(min(s.Keys, lo+r.IntN(width+1))))
		}
		p := newProblem(1, s)
		p.requireEqualsReference(t, p.run(t, e))
	})
}

func TestFiniteDifferences(t *testing.T) {
	p := newProblem(3, causal(4, 2, 4, 5, 3))
	p.Window = 4
	r := p.run(t, newEngine(t, 1))
	loss := func() float64 {
		ref := p.reference()
		dO := widen(p.dO, p.queries(), p.QHeads*p.HeadDim)
		s := 0.0
		for i, v := range ref.o.data {
			s += v * dO.data[i]
		}
		return s
	}
	check := func(name string, x, grad Rows, cols int) {
		for i := range x.Data {
			if i%x.Stride >= cols {
				continue
			}
			// A power of two, so that x ± h is exact enough in float32.
			const h = 1.0 / 256
			v := x.Data[i]
			x.Data[i] = v + h
			up, x1 := loss(), x.Data[i]
			x.Data[i] = v - h
			down, x0 := loss(), x.Data[i]
			x.Data[i] = v
			require.InDelta(t, (up-down)/(float64(x1)-float64(x0)), float64(grad.Data[i]), 3e-5, "%s %d", name, i)
		}
	}
	check("q", p.q, r.grad.Q, p.QHeads*p.HeadDim)
	check("k", p.k, r.grad.K, p.KVHeads*p.HeadDim)
	check("v", p.v, r.grad.V, p.KVHeads*p.HeadDim)
}

// The number of workers decides how Backward divides its work.
func TestSameBitsForAnyNumberOfWorkers(t *testing.T) {
	for _, s := range []Spec{
		causal(4, 2, 16, 300), causal(4, 4, 8, 90, 100, 70, 130), causal(2, 1, 8, 600),
	} {
		p := newProblem(5, s)
		want := p.run(t, newEngine(t, 1))
		for _, workers := range []int{2, 3, 7} {
			e := newEngine(t, workers)
			for range 2 { // cold and warm
				requireSame(t, want, p.run(t, e))
			}
		}
	}
}

func TestBothWaysOfBackwardAreUsed(t *testing.T) {
	ways := map[bool]bool{}
	for _, workers := range []int{1, 7} {
		p := newProblem(5, causal(2, 1, 8, 300))
		e := newEngine(t, workers)
		e.run.arguments = arguments{Spec: &p.Spec}
		e.run.divide(&p.Spec, false)
		ways[e.run.wholeSequences()] = true
	}
	assert.Len(t, ways, 2)
}

func requireSame(t *testing.T, want, got result) {
	t.Helper()
	requireSameBits(t, want.o.Data, got.o.Data)
	requireSameBits(t, want.lse, got.lse)
	requireSameBits(t, want.grad.Q.Data, got.grad.Q.Data)
	requireSameBits(t, want.grad.K.Data, got.grad.K.Data)
	requireSameBits(t, want.grad.V.Data, got.grad.V.Data)
}

func requireSameBits(t *testing.T, want, got []float32) {
	t.Helper()
	require.Len(t, got, len(want))
	for i := range want {
		require.Equal(t, math.Float32bits(want[i]), math.Float32bits(got[i]), "element %d", i)
	}
}

// A document's results do not depend on the documents packed around it.
func TestSameBitsInAnyBatch(t *testing.T) {
	e := newEngine(t, 2)
	const n, before = 150, 83
	packed := newProblem(7, causal(4, 2, 16, before, n, 201))
	alone := newProblem(8, causal(4, 2, 16, n))
	for _, m := range [][2]Rows{{alone.q, packed.q}, {alone.k, packed.k}, {alone.v, packed.v}, {alone.dO, packed.dO}} {
		copy(m[0].Data, m[1].Data[before*m[1].Stride:])
	}
	all, one := packed.run(t, e), alone.run(t, e)
	part := func(r Rows) []float32 { return r.Data[before*r.Stride:][:n*r.Stride] }
	requireSameBits(t, one.o.Data, part(all.o))
	requireSameBits(t, one.lse, all.lse[before*4:][:n*4])
	requireSameBits(t, one.grad.Q.Data, part(all.grad.Q))
	requireSameBits(t, one.grad.K.Data, part(all.grad.K))
	requireSameBits(t, one.grad.V.Data, part(all.grad.V))
}

// Decoding: few queries on caches of any length, in any order, in one batch
// with a prompt.
func TestDecode(t *testing.T) {
	e := newEngine(t, 2)
	for _, heads := range [][2]int{{1, 1}, {4, 2}, {3, 1}} {
		for _, keys := range []int{1, 5, 511, 512, 513, 1500} {
			for _, n := range []int{1, 3, 8} {
				s := Spec{QHeads: heads[0], KVHeads: heads[1], HeadDim: 16, Keys: keys + 40}
				for i := range n {
					s.Lo, s.Hi = append(s.Lo, 7), append(s.Hi, int32(7+max(1, keys-n+1+i)))
				}
				p := newProblem(uint64(keys), s)
				r := p.forward(t, e)
				p.requireEqualsReference(t, r)
				// Each query alone gives the same bits.
				one := *p
				one.Lo, one.Hi, one.q = p.Lo[n-1:], p.Hi[n-1:], Rows{Data: p.q.from(n-1, 0), Stride: p.q.Stride}
				requireSameBits(t, r.o.from(n-1, 0)[:s.QHeads*s.HeadDim], one.forward(t, e).o.Data[:s.QHeads*s.HeadDim])
			}
		}
	}
	mixed := Spec{
		QHeads: 4, KVHeads: 2, HeadDim: 8, Keys: 3000,
		Lo: []int32{2000, 0, 700, 5, 1500},
		Hi: []int32{2900, 600, 1400, 5, 1501},
	}
	for i := range int32(20) { // a prompt of 20 in the same call
		mixed.Lo, mixed.Hi = append(mixed.Lo, 1510), append(mixed.Hi, 1511+i)
	}
	p := newProblem(1, mixed)
	p.requireEqualsReference(t, p.forward(t, e))
	mixed.Window = 550
	p = newProblem(1, mixed)
	p.requireEqualsReference(t, p.forward(t, e))
}

func TestNothingToDo(t *testing.T) {
	e := newEngine(t, 2)
	p := newProblem(1, Spec{QHeads: 2, KVHeads: 1, HeadDim: 4, Keys: 3})
	p.requireEqualsReference(t, p.run(t, e))
	p = newProblem(1, Spec{QHeads: 2, KVHeads: 1, HeadDim: 4, Keys: 3, Lo: []int32{1, 3}, Hi: []int32{1, 0}})
	p.requireEqualsReference(t, p.run(t, e))
	p = newProblem(1, Spec{QHeads: 2, KVHeads: 1, HeadDim: 4, Lo: []int32{0}, Hi: []int32{0}})
	p.requireEqualsReference(t, p.run(t, e))
}

// Scores of any size neither overflow nor lose the row.
func TestLargeScores(t *testing.T) {
	e := newEngine(t, 1)
	s := causal(1, 1, 8, 200)
	s.Scale = 100
	p := newProblem(9, s)
	r := p.run(t, e)
	want := p.reference()
	requireClose(t, "o", want.o, r.o, 2e-3) // 1e3 in a score is 6e-5 of it
	for _, v := range r.grad.Q.Data {
		require.False(t, math.IsInf(float64(v), 0))
	}
}

func TestErrors(t *testing.T) {
	e := newEngine(t, 1)
	for name, spoil := range map[string]func(p *problem){
		"heads":     func(p *problem) { p.KVHeads = 3 },
		"no heads":  func(p *problem) { p.KVHeads = 0 },
		"head size": func(p *problem) { p.HeadDim = 0 },
		"bounds":    func(p *problem) { p.Lo = p.Lo[1:] },
		"above":     func(p *problem) { p.Hi[3] = 11 },
		"below":     func(p *problem) { p.Lo[3] = -1 },
		"short q":   func(p *problem) { p.q.Data = p.q.Data[:len(p.q.Data)-4] },
		"stride":    func(p *problem) { p.k.Stride = 7 },
	} {
		p := newProblem(1, causal(2, 2, 4, 10))
		o, lse := p.rows(nil, 10, 8), make([]float32, 20)
		spoil(p)
		assert.ErrorIs(t, e.Forward(&p.Spec, o, lse, p.q, p.k, p.v), ErrShape, name)
		assert.ErrorIs(t, e.Backward(&p.Spec, Gradients{o, o, o}, o, p.q, p.k, p.v, o, lse), ErrShape, name)
	}
	p := newProblem(1, causal(2, 2, 4, 10))
	assert.ErrorIs(t, e.Forward(&p.Spec, p.dO, make([]float32, 19), p.q, p.k, p.v), ErrShape)
}

func TestWarmEngineAllocatesNothing(t *testing.T) {
	e := newEngine(t, 1)
	p := newProblem(1, causal(2, 1, 8, 150, 3, 600))
	r := p.run(t, e)
	n := testing.AllocsPerRun(5, func() {
		_ = e.Forward(&p.Spec, r.o, r.lse, p.q, p.k, p.v)
		_ = e.Backward(&p.Spec, r.grad, p.dO, p.q, p.k, p.v, r.o, r.lse)
	})
	assert.Zero(t, n)
}
