package vec

import (
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func f64(x []float32) []float64 {
	y := make([]float64, len(x))
	for i, v := range x {
		y[i] = float64(v)
	}
	return y
}

// numericalGrad is the derivative of f by central differences in float64.
func numericalGrad(f func(x []float64) float64, x []float64) []float64 {
	g := make([]float64, len(x))
	const h = 1e-5
	for i, v := range x {
		x[i] = v + h
		up := f(x)
		x[i] = v - h
		g[i] = (up - f(x)) / (2 * h)
		x[i] = v
	}
	return g
}

// requireClose compares relative to the largest element, or to least where
// all of them are small because they cancel.
func requireClose(t *testing.T, want []float64, got []float32, tolerance, least float64) {
	t.Helper()
	scale := least
	for _, v := range want {
		scale = max(scale, math.Abs(v))
	}
	for i := range want {
		require.InDelta(t, want[i], float64(got[i]), tolerance*scale, "element %d", i)
	}
}

func refRMSNorm(x, w []float64, eps float64) []float64 {
	s := 0.0
	for _, v := range x {
		s += v * v
	}
	r := 1 / math.Sqrt(s/float64(len(x))+eps)
	y := make([]float64, len(x))
	for i, v := range x {
		y[i] = v * r * w[i]
	}
	return y
}

func weighted(y, dy []float64) float64 {
	s := 0.0
	for i := range y {
		s += y[i] * dy[i]
	}
	return s
}

func TestRMSNorm(t *testing.T) {
	const eps = 1e-3
	each(t, func(t *testing.T) {
		for _, n := range lengths() {
			if n == 0 {
				continue
			}
			x, w, dy := random(1, n, 2), random(2, n, 1), random(3, n, 1)
			y, all := guarded(n)
			rstd := RMSNorm(y, x, w, eps)
			want := refRMSNorm(f64(x), f64(w), eps)
			requireUlps(t, 4, func(i int) float64 { return want[i] }, nil, y)
			requireGuards(t, all)
			assert.InEpsilon(t, 1/math.Sqrt(weighted(f64(x), f64(x))/float64(n)+eps), float64(rstd), 1e-6)
			if n > 130 {
				continue
			}
			loss := func(x []float64) float64 { return weighted(refRMSNorm(x, f64(w), eps), f64(dy)) }
			dx, all := guarded(n)
			dw := make([]float32, n)
			for i := range dw {
				dw[i] = 10
			}
			RMSNormGrad(dx, dw, dy, x, w, eps)
			requireGuards(t, all)
			requireClose(t, numericalGrad(loss, f64(x)), dx, 2e-6, 1)
			lossW := func(w []float64) float64 { return weighted(refRMSNorm(f64(x), w, eps), f64(dy)) }
			wantW := numericalGrad(lossW, f64(w))
			for i := range wantW {
				require.InDelta(t, wantW[i]+10, float64(dw[i]), 1e-5)
			}
			again := append([]float32{}, dy...)
			RMSNormGrad(again, nil, again, x, w, eps)
			require.Equal(t, dx, again)
		}
	})
}

func TestLayerNorm(t *testing.T) {
	each(t, func(t *testing.T) {
		for _, n := range lengths() {
			if n == 0 {
				continue
			}
			x, w, b := random(1, n, 2), random(2, n, 1), random(3, n, 1)
			for i := range x {
				x[i] += 5
			}
			mean, v := 0.0, 0.0
			for _, e := range f64(x) {
				mean += e / float64(n)
			}
			for _, e := range f64(x) {
				v += (e - mean) * (e - mean) / float64(n)
			}
			r := 1 / math.Sqrt(v+1e-5)
			want := make([]float64, n)
			for i := range want {
				want[i] = (float64(x[i])-mean)*r*float64(w[i]) + float64(b[i])
			}
			y, all := guarded(n)
			gotMean, gotR := LayerNorm(y, x, w, b, 1e-5)
			requireGuards(t, all)
			if n > 1 { // with one element only the rounding of its mean is left
				requireClose(t, want, y, 3e-6, 1)
				assert.InEpsilon(t, r, float64(gotR), 1e-5)
			}
			assert.InEpsilon(t, mean, float64(gotMean), 1e-6)
		}
	})
}

func refSoftmax(x []float64) []float64 {
	m, s := math.Inf(-1), 0.0
	for _, v := range x {
		m = max(m, v)
	}
	y := make([]float64, len(x))
	for i, v := range x {
		y[i] = math.Exp(v - m)
		s += y[i]
	}
	for i := range y {
		y[i] /= s
	}
	return y
}

func TestSoftmax(t *testing.T) {
	each(t, func(t *testing.T) {
		for _, n := range lengths() {
			x, dy := random(4, n, 3), random(5, n, 1)
			y, all := guarded(n)
			Softmax(y, x)
			requireGuards(t, all)
			want := refSoftmax(f64(x))
			// The difference x − max is rounded where it is up to 24.
			requireUlps(t, 24, func(i int) float64 { return want[i] }, nil, y)
			requireUlps(t, 6, func(i int) float64 { return want[i] }, func(int) float64 { return 0.1 }, y)
			if n == 0 || n > 130 {
				continue
			}
			dx, all := guarded(n)
			ScoreGrad(dx, y, dy, Dot(y, dy), 1)
			requireGuards(t, all)
			loss := func(x []float64) float64 { return weighted(refSoftmax(x), f64(dy)) }
			requireClose(t, numericalGrad(loss, f64(x)), dx, 2e-6, 0.1)
			ScoreGrad(dx, y, dy, 0.5, 2)
			for i := range dx {
				require.InDelta(t, float64(y[i])*(float64(dy[i])-0.5)*2, dx[i], 1e-6)
			}
		}
		inf := float32(math.Inf(-1))
		y := []float32{inf, 1, inf, 1}
		Softmax(y, y)
		require.Equal(t, []float32{0, 0.5, 0, 0.5}, y)
		y = []float32{inf, inf}
		Softmax(y, y)
		require.True(t, y[0] != y[0])
	})
}

func TestCrossEntropy(t *testing.T) {
	each(t, func(t *testing.T) {
		for _, n := range append(lengths(), 32001) {
			if n == 0 {
				continue
			}
			x := random(6, n, 3)
			for i := range x {
				x[i] += 50
			}
			target := n * 2 / 3
			p := refSoftmax(f64(x))
			loss, lse := CrossEntropy(x, target)
			require.InDelta(t, -math.Log(p[target]), float64(loss), 2e-6*max(1, float64(loss)))
			require.Equal(t, lse, LogSumExp(x))
			require.Equal(t, 0-loss, LogProb(x[target], LogNormalizer(x)))
			CrossEntropyGrad(x, x, target, lse, 0.25)
			for i := range x {
				want := 0.25 * p[i]
				if i == target {
					want -= 0.25
				}
				// lse near 60 is rounded to 2e-6, which scales the row.
				require.InDelta(t, want, float64(x[i]), 0.25*4e-6*p[i]+1e-7*math.Abs(want)+1e-9)
			}
		}
		assert.Equal(t, float32(math.Inf(-1)), LogSumExp(nil))
	})
}

func TestRotary(t *testing.T) {
	each(t, func(t *testing.T) {
		for _, d := range []int{2, 6, 8, 16, 32, 64, 80, 96, 128, 256} {
			for _, extra := range []int{0, 10} {
				const heads = 3
				dim := d + extra
				x := random(7, heads*dim, 1)
				cos, sin := make([]float32, d/2), make([]float32, d/2)
				for i := range cos {
					s, c := math.Sincos(float64(i) + 0.3)
					cos[i], sin[i] = float32(c), float32(s)
				}
				y, all := guarded(heads * dim)
				Rotary(y, x, dim, cos, sin, false)
				requireGuards(t, all)
				for h := range heads {
					for i := range d / 2 {
						a, b := complex(float64(cos[i]), float64(sin[i])), complex(float64(x[h*dim+i]), float64(x[h*dim+i+d/2]))
						require.InDelta(t, real(a*b), y[h*dim+i], 1e-6)
						require.InDelta(t, imag(a*b), y[h*dim+i+d/2], 1e-6)
					}
					require.Equal(t, x[h*dim+d:(h+1)*dim], y[h*dim+d:(h+1)*dim])
				}
				Rotary(y, y, dim, cos, sin, true)
				requireClose(t, f64(x), y, 1e-6, 1)
			}
		}
	})
}

// The update in float64, as the documentation of torch.optim.AdamW has it.
func TestAdamW(t *testing.T) {
	o := adamW{LR: 1e-2, Beta1: 0.9, Beta2: 0.99, Eps: 1e-8, WeightDecay: 0.1}
	each(t, func(t *testing.T) {
		for _, n := range lengths() {
			p, all := guarded(n)
			copy(p, random(8, n, 1))
			m, v := make([]float32, n), make([]float32, n)
			wp, wm, wv := f64(p), make([]float64, n), make([]float64, n)
			for step := 1; step <= 4; step++ {
				g := random(uint64(100+step), n, 1)
				o.Step(p, m, v, g, step)
				for i := range wp {
					gi := float64(g[i])
					wp[i] *= 1 - o.LR*o.WeightDecay
					wm[i] = o.Beta1*wm[i] + (1-o.Beta1)*gi
					wv[i] = o.Beta2*wv[i] + (1-o.Beta2)*gi*gi
					mh := wm[i] / (1 - math.Pow(o.Beta1, float64(step)))
					vh := wv[i] / (1 - math.Pow(o.Beta2, float64(step)))
					wp[i] -= o.LR * mh / (math.Sqrt(vh) + o.Eps)
				}
			}
			requireGuards(t, all)
			for i := range wp {
				require.InDelta(t, wp[i], float64(p[i]), 1e-6)
				require.InDelta(t, wm[i], float64(m[i]), 1e-6)
				require.InDelta(t, wv[i], float64(v[i]), 1e-6)
			}
		}
	})
}

func TestPanel(t *testing.T) {
	each(t, func(t *testing.T) {
		for _, width := range append(lengths(), 80, 320) {
			for _, count := range []int{0, 1, 2, 3, 4, 5, 7, 8, 9, 21} {
				for _, n := range []int{0, 1, 2, 3, 4, 7} {
					testPanel(t, width, count, n)
				}
			}
		}
	})
}

func testPanel(t *testing.T, width, count, n int) {
	stride, xStride, wStride := width+3, width+1, count+2
	p := Panel{Rows: random(1, count*stride, 1), Stride: stride, Width: width, Count: count}
	if count > 0 {
		p.Rows = p.Rows[:(count-1)*stride+width] // the last row is not padded
	}
	x, w := random(2, n*xStride, 1), random(3, n*wStride, 1)
	dots, all1 := guarded(n * wStride)
	p.Dot(dots, wStride, x, xStride, n)
	requireGuards(t, all1)
	sums, all2 := guarded(n * xStride)
	copy(sums, x)
	p.AddTo(sums, xStride, w, wStride, n)
	requireGuards(t, all2)
	for i := range n {
		want := f64(x[i*xStride:][:width])
		for j := range count {
			dot, scale := 0.0, 1.0
			for c := range width {
				v := float64(p.Rows[j*stride+c])
				dot += float64(x[i*xStride+c]) * v
				scale += math.Abs(float64(x[i*xStride+c]) * v)
				want[c] += float64(w[i*wStride+j]) * v
			}
			if e := math.Abs(dot - float64(dots[i*wStride+j])); !(e < 4e-7*scale) {
				t.Fatalf("dot %d, %d of %dx%d: off by %g", i, j, count, width, e)
			}
		}
		for c := range want {
			if e := math.Abs(want[c] - float64(sums[i*xStride+c])); !(e < 1e-5) {
				t.Fatalf("sum %d, %d of %dx%d: off by %g", i, c, count, width, e)
			}
		}
		for _, v := range dots[i*wStride+count : (i+1)*wStride] {
			require.Equal(t, float32(12345), v)
		}
		require.Equal(t, x[i*xStride+width:(i+1)*xStride], sums[i*xStride+width:(i+1)*xStride])

		// Alone, a vector gives the same bits.
		one, alone := make([]float32, count), append([]float32{}, x[i*xStride:][:width]...)
		p.Dot(one, 0, alone, 0, 1)
		require.Equal(t, one, dots[i*wStride:][:count])
		p.AddTo(alone, 0, w[i*wStride:], 0, 1)
		require.Equal(t, alone, sums[i*xStride:][:width])
	}
}
