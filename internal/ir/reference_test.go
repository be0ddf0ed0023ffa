package ir

import (
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/internal/philox"
	"github.com/lorafuse/lorafuse/tensor"
)

const tiny = 1e-12

// TestClosedForms compares references with numbers known from elsewhere.
func TestClosedForms(t *testing.T) {
	for _, c := range []struct {
		name  string
		build func(s *scene) Value
		want  []float64
	}{
		{"softmax of equals", func(s *scene) Value { return s.Softmax(s.Const(7, mat(1, 4))) }, []float64{0.25, 0.25, 0.25, 0.25}},
		{"softmax of log 1, 2, 5", func(s *scene) Value {
			return s.Softmax(s.given("x", tensor.F32, ShapeOf(3), 0, math.Log(2), math.Log(5)))
		}, []float64{0.125, 0.25, 0.625}},
		{"norm of 3, 4", func(s *scene) Value {
			return s.RMSNorm(s.given("x", tensor.F32, ShapeOf(2), 3, 4), s.given("w", tensor.F32, ShapeOf(2), 1, 10), 0)
		}, []float64{3 / math.Sqrt(12.5), 40 / math.Sqrt(12.5)}},
		{"eps under the root", func(s *scene) Value {
			return s.RMSNorm(s.given("x", tensor.F32, ShapeOf(2), 3, 4), s.given("w", tensor.F32, ShapeOf(2), 1, 1), 12.5)
		}, []float64{0.6, 0.8}},
		{"a window of two pixels, zeros around", func(s *scene) Value {
			x := s.given("x", tensor.F32, ShapeOf(1, 1, 3, 1), 1, 2, 4)
			return s.Conv2D(x, s.given("w", tensor.F32, ShapeOf(1, 1, 2, 1), 1, 10), s.given("b", tensor.F32, ShapeOf(1), 100), Conv2DAttr{Stride: 1, Left: 1, Right: 1})
		}, []float64{110, 121, 142, 104}},
		{"every second row", func(s *scene) Value {
			x := s.given("x", tensor.F32, ShapeOf(1, 4, 1, 2), 1, 2, 3, 4, 5, 6, 7, 8)
			return s.Conv2D(x, s.given("w", tensor.F32, ShapeOf(1, 3, 1, 2), 1, 0, 0, 10, 1, 1), 0, Conv2DAttr{Stride: 2, Bottom: 1})
		}, []float64{1 + 40 + 11, 5 + 80}},
		{"groups of channels", func(s *scene) Value {
			x := s.given("x", tensor.F32, ShapeOf(1, 2, 3), 1, 2, 9, 3, 6, 1)
			return s.GroupNorm(x, s.given("w", tensor.F32, ShapeOf(3), 1, 1, 10), s.given("b", tensor.F32, ShapeOf(3), 0, 0, 5), 3, 0)
		}, []float64{-1, -1, 15, 1, 1, -5}},
		{"nearest pixels", func(s *scene) Value { return s.Upsample(s.given("x", tensor.F32, ShapeOf(1, 1, 2, 2), 1, 2, 3, 4), 2) },
			[]float64{1, 2, 1, 2, 3, 4, 3, 4, 1, 2, 1, 2, 3, 4, 3, 4}},
		{"a weight in 8-bit floats with scales of rows", func(s *scene) Value {
			w := s.given("w", tensor.F8E4M3, ShapeOf(2, 3), 1, 2, 3, 4, 5, 6)
			a := GemmAttr{N: 2, P: [MaxProducts]ProductAttr{{TB: true, Alpha: 1}, {Alpha: 2}}, HasC: true, Float8: 3, Scaled: 2}
			x := s.given("x", tensor.F32, ShapeOf(3, 3), 1, 0, 0, 0, 0, 0, 0, 0, 0)
			y := s.given("y", tensor.F32, ShapeOf(3, 2), 0, 1, 0, 0, 0, 0)
			square := s.given("v", tensor.F8E4M3, ShapeOf(3, 3), 1, 2, 3, 4, 5, 6, 7, 8, 9)
			return s.Slice(s.Apply(Gemm, a, x, square, y, w, s.Const(100, mat(3, 3)), s.given("scale", tensor.F32, ShapeOf(2, 1), 3, 10)), 0, 0, 1)
		}, []float64{100 + 1 + 2*40, 100 + 4 + 2*50, 100 + 7 + 2*60}},
		{"a weight in 8-bit floats with scales of blocks", func(s *scene) Value {
			w := s.given("w", tensor.F8E4M3, ShapeOf(3, 3), 1, 2, 3, 4, 5, 6, 7, 8, 9)
			a := GemmAttr{N: 1, P: [MaxProducts]ProductAttr{{TB: true, Alpha: 1}}, Float8: 1, Scaled: 1, Block: DequantizeAttr{2, 2}}
			return s.Apply(Gemm, a, s.given("x", tensor.F32, ShapeOf(1, 3), 1, 0, 1), w, s.given("scale", tensor.F32, ShapeOf(2, 2), 1, 10, 100, 1000))
		}, []float64{1 + 30, 4 + 60, 700 + 9000}},
		{"matrices in 8-bit floats with scales of blocks", func(s *scene) Value {
			w := s.given("w", tensor.F8E4M3, ShapeOf(2, 3, 2), 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12)
			return s.Dequantize(w, s.given("scale", tensor.F32, ShapeOf(2, 2, 2), 1, 10, 2, 20, 3, 30, 4, 40), DequantizeAttr{2, 1})
		}, []float64{1, 20, 3, 40, 10, 120, 21, 240, 27, 300, 44, 480}},
		{"silu", func(s *scene) Value { return s.act(SiLU, -1, 0, 1) }, []float64{-0.2689414213699951, 0, 0.7310585786300049}},
		{"gelu", func(s *scene) Value { return s.act(GELU, -1, 0, 1) }, []float64{-0.15865525393145707, 0, 0.8413447460685429}},
		{"gelu_tanh", func(s *scene) Value { return s.act(GELUTanh, 0, 1) }, []float64{0, 0.8411919906082768}},
		{"quick_gelu", func(s *scene) Value { return s.act(QuickGELU, -1, 0, 1) }, []float64{-1 / (1 + math.Exp(1.702)), 0, 1 / (1 + math.Exp(-1.702))}},
		{"quarter turn", func(s *scene) Value {
			// cos 0 and sin 1 turn (1, 2) of a head into (-2, 1).
			return s.RoPE(s.given("x", tensor.F32, ShapeOf(1, 4), 1, 2, 10, 20), s.given("t", tensor.F32, ShapeOf(1, 2), 0, 1), 2)
		}, []float64{-2, 1, -20, 10}},
		{"halves, not neighbours, are turned", func(s *scene) Value {
			return s.RoPE(s.given("x", tensor.F32, ShapeOf(1, 4), 1, 2, 3, 4), s.given("t", tensor.F32, ShapeOf(1, 4), 0, 1, 1, 0), 4)
		}, []float64{-3, 2, 1, 4}},
		{"neighbours, not halves, are turned", func(s *scene) Value {
			return s.RoPEInterleaved(s.given("x", tensor.F32, ShapeOf(1, 4), 1, 2, 3, 4), s.given("t", tensor.F32, ShapeOf(1, 4), 0, 0.6, 1, 0.8), 4)
		}, []float64{-2, 1, 0.6*3 - 0.8*4, 0.6*4 + 0.8*3}},
		{"angles", func(s *scene) Value {
			return s.RoPETable(s.ids("p", 0, 2), s.given("f", tensor.F32, ShapeOf(1), 0.5), 2)
		}, []float64{2, 0, 2 * math.Cos(1), 2 * math.Sin(1)}},
		{"loss of equals is log v", func(s *scene) Value {
			return s.CrossEntropy(s.Const(3, mat(4, 8)), s.ids("y", 0, -100, 7, 3))
		}, []float64{3 * math.Log(8)}},
		{"no label, no loss", func(s *scene) Value { return s.CrossEntropy(s.normal("x", 2, 8), s.ids("y", -100, -1)) }, []float64{0}},
		{"equal scores average the values", func(s *scene) Value {
			v := s.given("v", tensor.F32, ShapeOf(4, 1), 1, 2, 4, 8)
			o, _ := s.Attention(s.Const(0, mat(3, 1)), s.normal("k", 4, 1), v, s.ids("lo", 0, 1, 3), s.ids("hi", 4, 3, 3), AttentionAttr{Heads: 1, KVHeads: 1, HeadDim: 1, Scale: 1})
			return o
		}, []float64{3.75, 3, 0}},
		{"the last two keys", func(s *scene) Value {
			v := s.given("v", tensor.F32, ShapeOf(4, 1), 1, 2, 4, 8)
			o, _ := s.Attention(s.Const(0, mat(2, 1)), s.normal("k", 4, 1), v, s.ids("lo", 0, 3), s.ids("hi", 4, 4), AttentionAttr{Heads: 1, KVHeads: 1, HeadDim: 1, Scale: 1, Window: 2})
			return o
		}, []float64{6, 8}},
		{"log-sum-exp", func(s *scene) Value {
			k := s.given("k", tensor.F32, ShapeOf(2, 1), 0, math.Log(3))
			_, lse := s.Attention(s.Const(2, mat(3, 1)), k, k, s.ids("lo", 0, 0, 1), s.ids("hi", 2, 1, 1), AttentionAttr{Heads: 1, KVHeads: 1, HeadDim: 1, Scale: 0.5})
			return lse
		}, []float64{math.Log(4), 0, math.Inf(-1)}},
		{"heads share keys", func(s *scene) Value {
			q := s.given("q", tensor.F32, ShapeOf(1, 4), 1, 2, 3, 4)
			k := s.given("k", tensor.F32, ShapeOf(1, 2), 5, 7)
			o, _ := s.Attention(q, k, k, s.ids("lo", 0), s.ids("hi", 1), AttentionAttr{Heads: 4, KVHeads: 2, HeadDim: 1, Scale: 1})
			return o
		}, []float64{5, 5, 7, 7}},
		{"sum of squares", func(s *scene) Value { return s.SumSquares(s.given("x", tensor.F32, ShapeOf(2, 2), 1, -2, 3, 4)) }, []float64{30}},
		{"rows of a table", func(s *scene) Value {
			return s.GatherRows(s.given("x", tensor.F32, ShapeOf(3, 2), 1, 2, 3, 4, 5, 6), s.ids("i", 2, 0))
		}, []float64{5, 6, 1, 2}},
		{"rows added", func(s *scene) Value {
			return s.ScatterAddRows(s.given("x", tensor.F32, ShapeOf(3, 2), 1, 2, 3, 4, 5, 6), s.ids("i", 1, 0, 1), Static(3))
		}, []float64{3, 4, 6, 8, 0, 0}},
		{"rows written over", func(s *scene) Value {
			return s.UpdateRows(s.given("x", tensor.F32, ShapeOf(3), 1, 2, 3), s.given("y", tensor.F32, ShapeOf(1), 9), s.ids("o", 1))
		}, []float64{1, 9, 3}},
		{"the first of equals", func(s *scene) Value { return s.ArgMax(s.given("x", tensor.F32, ShapeOf(2, 3), 1, 4, 4, -1, -3, -2)) }, []float64{1, 0}},
		{"product with transposes", func(s *scene) Value {
			x, y := s.given("x", tensor.F32, ShapeOf(2, 1), 1, 2), s.given("y", tensor.F32, ShapeOf(3, 2), 1, 10, 2, 20, 3, 30)
			return s.Gemm([]Product{{x, y, true, true, 0.5}}, s.given("b", tensor.F32, ShapeOf(3), 100, 0, 0), s.given("c", tensor.F32, ShapeOf(1, 3), 0, 0, 1000))
		}, []float64{110.5, 21, 1031.5}},
		{"rounding to nearest even", func(s *scene) Value {
			return s.Cast(s.given("x", tensor.F32, ShapeOf(4), 0.5, 1.5, -2.5, 2.6), tensor.I32)
		}, []float64{0, 2, -2, 3}},
		{"half of a bfloat", func(s *scene) Value {
			return s.Cast(s.given("x", tensor.F32, ShapeOf(2), 1+1.0/256, 1+3.0/256), tensor.BF16)
		}, []float64{1, 1 + 2.0/128}},
		{"sum over what was repeated", func(s *scene) Value {
			return s.SumTo(s.given("x", tensor.F32, ShapeOf(2, 3), 1, 2, 3, 4, 5, 6), ShapeOf(1, 3))
		}, []float64{5, 7, 9}},
		{"sum to a scalar", func(s *scene) Value {
			return s.SumTo(s.given("x", tensor.F32, ShapeOf(2, 3), 1, 2, 3, 4, 5, 6), ShapeOf())
		}, []float64{21}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newScene(t)
			v := c.build(s)
			require.NoError(t, s.Err())
			s.close(c.want, s.value(v), tiny)
		})
	}
}

// act computes the activation of x.
func (s *scene) act(a Activation, x ...float64) Value {
	return s.GLU(s.given("x", tensor.F32, ShapeOf(len(x)), x...), s.Const(1, mat(len(x))), a)
}

// TestRoPEKeepsProducts: the product of two turned vectors depends on the
// distance of their positions alone.
func TestRoPEKeepsProducts(t *testing.T) {
	s := newScene(t)
	q, k := s.normal("q", 1, 8), s.normal("k", 1, 8)
	freq := s.given("f", tensor.F32, ShapeOf(4), 1, 0.25, 0.0625, 0.015625)
	product := func(name string, p, r float64) float64 {
		turn := func(x Value, name string, pos float64) Value {
			return s.RoPE(x, s.RoPETable(s.ids(name, pos), freq, 1), 8)
		}
		return s.value(s.MatMul(turn(q, name+"q", p), turn(k, name+"k", r), false, true))[0]
	}
	assert.InDelta(t, product("a", 5, 3), product("b", 105, 103), 1e-9)
	assert.NotEqual(t, product("c", 5, 3), product("d", 5, 4))
	back := s.Apply(RoPE, RoPEAttr{HeadDim: 8, Inverse: true}, s.RoPE(q, s.RoPETable(s.ids("e", 9), freq, 1), 8), s.RoPETable(s.ids("g", 9), freq, 1))
	s.close(s.value(q), s.value(back), tiny)
}

func TestDropoutDropsWhatItSays(t *testing.T) {
	s := newScene(t)
	const count, p = 20000, 0.3
	y := s.value(s.Dropout(s.Const(1, mat(count)), s.key(), DropoutAttr{p, 5}))
	mask := philox.NewMask(7, 3, 5, p)
	dropped := 0
	for i, v := range y {
		if !mask.Keep(uint64(i)) {
			require.Zero(t, v)
			dropped++
		} else {
			require.InDelta(t, 1/(1-p), v, tiny)
		}
	}
	assert.InDelta(t, p, float64(dropped)/count, 0.02)
	assert.NotEqual(t, y, s.value(s.Dropout(s.Const(1, mat(count)), s.key(), DropoutAttr{p, 6})), "another stream")
	x := s.normal("x", 3)
	assert.Equal(t, x, s.Dropout(x, 0, DropoutAttr{}), "no dropout, no node")
}

func TestAdamWStep(t *testing.T) {
	const lr, decay, b1, b2, eps, step, clip = 1e-2, 0.1, 0.9, 0.95, 1e-6, 3, 0.5
	s := newScene(t)
	p, m, v, g := s.normal("p", 5), s.normal("m", 5), s.positive("v", 5), s.normal("g", 5)
	rates := s.given("rates", tensor.F32, ShapeOf(3), 1-lr*decay, lr/(1-math.Pow(b1, step)), math.Sqrt(1-math.Pow(b2, step)))
	scale := s.given("scale", tensor.F32, Shape{}, clip)
	p2, m2, v2 := s.AdamW(p, m, v, g, rates, scale, AdamWAttr{b1, b2, eps})
	var wantP, wantM, wantV []float64
	for i := range 5 {
		grad := s.args["g"].Data[i] * clip
		mi := b1*s.args["m"].Data[i] + (1-b1)*grad
		vi := b2*s.args["v"].Data[i] + (1-b2)*grad*grad
		mHat, vHat := mi/(1-math.Pow(b1, step)), vi/(1-math.Pow(b2, step))
		wantP = append(wantP, s.args["p"].Data[i]*(1-lr*decay)-lr*mHat/(math.Sqrt(vHat)+eps))
		wantM, wantV = append(wantM, mi), append(wantV, vi)
	}
	s.close(wantP, s.value(p2), 1e-9)
	s.close(wantM, s.value(m2), tiny)
	s.close(wantV, s.value(v2), tiny)
	for _, bad := range []float64{math.NaN(), math.Inf(1)} {
		s.args["scale"].Data[0] = bad
		assert.Equal(t, s.args["p"].Data, s.value(p2), "a step with a factor of %v is left out", bad)
		assert.Equal(t, s.args["v"].Data, s.value(v2))
	}
}

func TestLinearCrossEntropyIsCrossEntropyOfLogits(t *testing.T) {
	s := newScene(t)
	x, w, y := s.normal("x", 5, 4), s.normal("w", 7, 4), s.ids("y", 3, -100, 0, 6, -100)
	want := s.value(s.CrossEntropy(s.Linear(x, w, 0), y))
	assert.Equal(t, want, s.value(s.LinearCrossEntropy(x, w, y)))
	d := s.Apply(LinearCrossEntropyGrad, nil, x, w, y, s.Const(1, scalar))
	assert.Equal(t, want, s.value(s.Reshape(s.Out(d, 1), Shape{})))
}

func TestReferenceArguments(t *testing.T) {
	g := New()
	x := g.Param("x", Type{tensor.F32, Shape{g.Bound("n", 4), Static(2)}})
	y := g.Scale(x, 3)
	_, err := g.Reference([]Value{y}, nil, g.MaxDims())
	require.ErrorIs(t, err, ErrGraph)
	assert.ErrorContains(t, err, `no argument for param "x"`)
	_, err = g.Reference([]Value{y}, map[string]*Host{"x": {Data: make([]float64, 8)}}, []int{0, 3})
	assert.ErrorContains(t, err, `param "x" has 8 elements, expected 6`)
	h, err := g.Reference([]Value{y}, map[string]*Host{"x": {DType: tensor.F32, Shape: []int{1, 2}, Data: []float64{1, 2}}}, []int{0, 1})
	require.NoError(t, err)
	assert.Equal(t, []float64{3, 6}, h[0].Data)
	assert.Equal(t, []int{1, 2}, h[0].Shape)
}
