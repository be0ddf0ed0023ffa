package attention

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/backend/cpu/internal/gemm"
	"github.com/lorafuse/lorafuse/backend/cpu/internal/pool"
)

// problem is a Spec with its arguments. Rows are wider than needed, and what
// lies between them is NaN, so that reading or writing it shows.
type problem struct {
	Spec
	q, k, v, dO Rows
}

func (p *problem) rows(r *rand.Rand, n, cols int) Rows {
	const gap = 3
	m := Rows{Data: make([]float32, n*(cols+gap)), Stride: cols + gap}
	for i := range m.Data {
		m.Data[i] = float32(math.NaN())
		if i%m.Stride < cols && r != nil {
			m.Data[i] = float32(r.NormFloat64())
		}
	}
	return m
}

func newProblem(seed uint64, spec Spec) *problem {
	r := rand.New(rand.NewPCG(seed, 1))
	p := &problem{Spec: spec}
	if p.Scale == 0 {
		p.Scale = float32(1 / math.Sqrt(float64(spec.HeadDim)))
	}
	qc, kc := spec.QHeads*spec.HeadDim, spec.KVHeads*spec.HeadDim
	p.q, p.dO = p.rows(r, spec.queries(), qc), p.rows(r, spec.queries(), qc)
	p.k, p.v = p.rows(r, spec.Keys, kc), p.rows(r, spec.Keys, kc)
	return p
}

// causal is the Spec of documents of the given lengths, one behind the other.
func causal(qHeads, kvHeads, dim int, lengths ...int) Spec {
	s := Spec{QHeads: qHeads, KVHeads: kvHeads, HeadDim: dim}
	for _, n := range lengths {
		for i := range n {
			s.Lo = append(s.Lo, int32(s.Keys))
			s.Hi = append(s.Hi, int32(s.Keys+i+1))
		}
		s.Keys += n
	}
	return s
}

type result struct {
	o    Rows
	lse  []float32
	grad Gradients
}

func newEngine(t testing.TB, workers int) *Engine { return engineOf(t, workers, gemm.F32) }

func engineOf(t testing.TB, workers int, precision gemm.Elem) *Engine {
	p := pool.New(workers)
	t.Cleanup(p.Close)
	g := gemm.New(p)
	g.SetPrecision(precision)
	return New(p, g)
}

func (p *problem) forward(t testing.TB, e *Engine) result {
	r := result{
		o:   p.rows(nil, p.queries(), p.QHeads*p.HeadDim),
		lse: make([]float32, p.queries()*p.QHeads),
	}
	for i := range r.lse {
		r.lse[i] = float32(math.NaN())
	}
	require.NoError(t, e.Forward(&p.Spec, r.o, r.lse, p.q, p.k, p.v))
	return r
}

func (p *problem) run(t testing.TB, e *Engine) result {
	r := p.forward(t, e)
	r.grad = Gradients{
		Q: p.rows(nil, p.queries(), p.QHeads*p.HeadDim),
		K: p.rows(nil, p.Keys, p.KVHeads*p.HeadDim),
		V: p.rows(nil, p.Keys, p.KVHeads*p.HeadDim),
	}
	require.NoError(t, e.Backward(&p.Spec, r.grad, p.dO, p.q, p.k, p.v, r.o, r.lse))
	return r
}

// dense is a matrix of float64 over the columns of heads.
type dense struct {
	data []float64
	cols int
}

func newDense(rows, cols int) dense { return dense{make([]float64, rows*cols), cols} }

func (d dense) at(i, j int) *float64 { return &d.data[i*d.cols+j] }

func widen(r Rows, rows, cols int) dense {
	d := newDense(rows, cols)
	for i := range rows {
		for j := range cols {
			*d.at(i, j) = float64(r.Data[i*r.Stride+j])
		}
	}
	return d
}

type reference struct {
	o, lse, dq, dk, dv dense
}

// reference computes everything in float64 from the definition.
func (p *problem) reference() reference {
	d, qc, kc := p.HeadDim, p.QHeads*p.HeadDim, p.KVHeads*p.HeadDim
	nq := p.queries()
	q, dO := widen(p.q, nq, qc), widen(p.dO, nq, qc)
	k, v := widen(p.k, p.Keys, kc), widen(p.v, p.Keys, kc)
	r := reference{newDense(nq, qc), newDense(nq, p.QHeads), newDense(nq, qc), newDense(p.Keys, kc), newDense(p.Keys, kc)}
	scale := float64(p.Scale)
	for i := range nq {
		lo, hi := int(p.Lo[i]), int(p.Hi[i])
		if p.Window > 0 {
			lo = max(lo, hi-p.Window)
		}
		for h := range p.QHeads {
			kv := h / (p.QHeads / p.KVHeads) * d
			*r.lse.at(i, h) = math.Inf(-1)
			if lo >= hi {
				continue
			}
			s := make([]float64, hi-lo)
			largest := math.Inf(-1)
			for j := range s {
				for x := range d {
					s[j] += scale * *q.at(i, h*d+x) * *k.at(lo+j, kv+x)
				}
				largest = max(largest, s[j])
			}
			total := 0.0
			for j := range s {
				s[j] = math.Exp(s[j] - largest)
				total += s[j]
			}
			*r.lse.at(i, h) = largest + math.Log(total)
			for j := range s {
				s[j] /= total
				for x := range d {
					*r.o.at(i, h*d+x) += s[j] * *v.at(lo+j, kv+x)
				}
			}
			delta := 0.0
			for x := range d {
				delta += *dO.at(i, h*d+x) * *r.o.at(i, h*d+x)
			}
			for j, pj := range s {
				dp := 0.0
				for x := range d {
					dp += *dO.at(i, h*d+x) * *v.at(lo+j, kv+x)
				}
				ds := pj * (dp - delta) * scale
				for x := range d {
					*r.dv.at(lo+j, kv+x) += pj * *dO.at(i, h*d+x)
					*r.dq.at(i, h*d+x) += ds * *k.at(lo+j, kv+x)
					*r.dk.at(lo+j, kv+x) += ds * *q.at(i, h*d+x)
				}
			}
		}
	}
	return r
}

// requireClose compares relative to the largest element of the matrix, and
// checks that the gaps between rows are as they were.
func requireClose(t testing.TB, name string, want dense, got Rows, tolerance float64) {
	t.Helper()
	rows := len(want.data) / max(1, want.cols)
	scale := 1.0 // gradients may be 0 by cancellation
	for _, v := range want.data {
		scale = max(scale, math.Abs(v))
	}
	for i := range rows {
		for j := range want.cols {
			w, g := *want.at(i, j), float64(got.Data[i*got.Stride+j])
			require.InDelta(t, w, g, tolerance*scale, "%s[%d,%d]", name, i, j)
		}
		for j := want.cols; j < got.Stride; j++ {
			v := got.Data[i*got.Stride+j]
			require.True(t, v != v, "%s: wrote between the rows", name)
		}
	}
}

func (p *problem) requireEqualsReference(t testing.TB, r result) {
	t.Helper()
	want := p.reference()
	requireClose(t, "o", want.o, r.o, 3e-6)
	for i, w := range want.lse.data {
		if math.IsInf(w, -1) {
			require.Equal(t, float32(w), r.lse[i])
			continue
		}
		require.InDelta(t, w, float64(r.lse[i]), 3e-6*max(1, math.Abs(w)))
	}
	if r.grad.Q.Data == nil {
		return
	}
	requireClose(t, "dq", want.dq, r.grad.Q, 5e-6)
	requireClose(t, "dk", want.dk, r.grad.K, 5e-6)
	requireClose(t, "dv", want.dv, r.grad.V, 5e-6)
}
