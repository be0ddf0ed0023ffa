package ir

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/tensor"
)

// scene is a graph with the values of its params.
type scene struct {
	*Graph
	t    testing.TB
	rand *rand.Rand
	args map[string]*Host
	dims []int
}

func newScene(t testing.TB, dims ...int) *scene {
	g := New()
	for i, d := range dims {
		g.Bound(string(rune('n'+i)), d)
	}
	return &scene{g, t, rand.New(rand.NewPCG(3, 4)), map[string]*Host{}, append([]int{0}, dims...)}
}

// normal adds a param of normal numbers.
func (s *scene) normal(name string, dims ...int) Value {
	v := s.Param(name, f32(ShapeOf(dims...)))
	h := NewHost(s.Type(v), s.dims)
	for i := range h.Data {
		h.Data[i] = s.rand.NormFloat64()
	}
	s.args[name] = h
	return v
}

// positive adds a param of numbers from 0.5 to 2.
func (s *scene) positive(name string, dims ...int) Value {
	v := s.normal(name, dims...)
	for i := range s.args[name].Data {
		s.args[name].Data[i] = 0.5 + 1.5*s.rand.Float64()
	}
	return v
}

// given adds a param of the given numbers.
func (s *scene) given(name string, d tensor.DType, shape Shape, x ...float64) Value {
	v := s.Param(name, Type{d, shape})
	h := NewHost(s.Type(v), s.dims)
	require.Len(s.t, x, len(h.Data))
	copy(h.Data, x)
	s.args[name] = h
	return v
}

func (s *scene) ids(name string, x ...float64) Value {
	return s.given(name, tensor.I32, ShapeOf(len(x)), x...)
}

func (s *scene) key() Value { return s.given("key", tensor.U32, ShapeOf(3), 7, 0, 3) }

func (s *scene) value(v Value) []float64 {
	s.t.Helper()
	h, err := s.Reference([]Value{v}, s.args, s.dims)
	require.NoError(s.t, err)
	return h[0].Data
}

// weighted is Σ wᵢ·xᵢ over the elements of all vs, with weights of a fixed
// pattern: every element has a part of its own.
func (s *scene) weighted(vs ...Value) Value {
	var loss Value
	for _, v := range vs {
		n := s.Type(v).Shape.Elements(s.dims)
		x := s.Reshape(v, ShapeOf(n))
		index := s.Cast(s.Iota(0, ShapeOf(n)), tensor.F32)
		term := s.Reduce(ReduceSum, s.Mul(x, s.Unary(Cos, s.AddScalar(s.Scale(index, 2.3), 0.4))), 0)
		if loss == 0 {
			loss = term
		} else {
			loss = s.Add(loss, term)
		}
	}
	return loss
}

// differences computes the central differences of loss for the elements of a param.
func (s *scene) differences(loss Value, name string) []float64 {
	s.t.Helper()
	const step = 1e-5
	x := s.args[name].Data
	out := make([]float64, len(x))
	for i, was := range x {
		x[i] = was + step
		up := s.value(loss)[0]
		x[i] = was - step
		down := s.value(loss)[0]
		x[i] = was
		out[i] = (up - down) / (2 * step)
	}
	return out
}

func (s *scene) close(want, got []float64, limit float64, msg ...any) {
	s.t.Helper()
	require.Len(s.t, got, len(want), msg...)
	scale := 0.0
	for _, w := range want {
		scale = math.Max(scale, math.Abs(w))
	}
	for i := range want {
		if want[i] == got[i] {
			continue
		}
		require.InDelta(s.t, want[i], got[i], limit*(scale+1e-3), msg...)
	}
}
