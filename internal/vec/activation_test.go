package vec

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

// reference is the definition of each activation, written as its paper does.
func (act Act) reference(x float64) float64 {
	switch act {
	case GELU:
		return x * 0.5 * math.Erfc(-x/math.Sqrt2)
	case GELUTanh:
		return 0.5 * x * (1 + math.Tanh(math.Sqrt(2/math.Pi)*(x+0.044715*x*x*x)))
	}
	return x / (1 + math.Exp(-x))
}

func (act Act) referenceSlope(x float64) float64 {
	const h = 1e-4
	// Fourth-order central difference: error 1e-13 or so.
	f := act.reference
	return (8*(f(x+h)-f(x-h)) - (f(x+2*h) - f(x-2*h))) / (12 * h)
}

func TestActivations(t *testing.T) {
	x := make([]float32, 40_001)
	for i := range x {
		x[i] = float32(i-20_000) / 1000
	}
	ones := make([]float32, len(x))
	for i := range ones {
		ones[i] = 1
	}
	y := make([]float32, len(x))
	each(t, func(t *testing.T) {
		for act := range actCount {
			own := func(i int) float64 { return float64(x[i]) }
			if act == SiLU {
				own = nil
			}
			Activate(act, y, x)
			requireUlps(t, 4, func(i int) float64 { return act.reference(float64(x[i])) }, own, y)
			ActivateGrad(act, y, ones, x)
			requireUlps(t, 8, func(i int) float64 { return act.referenceSlope(float64(x[i])) }, func(int) float64 { return 1 }, y)
		}
	})
}

// GELU by the normal distribution keeps relative accuracy where 1+erf would
// cancel, as far as the rounding of x² allows.
func TestGELUTail(t *testing.T) {
	x := []float32{-0.5, -1, -2, -3, -4, -5, -6, -8, -10, -12}
	y := make([]float32, len(x))
	each(t, func(t *testing.T) {
		Activate(GELU, y, x)
		for i := range x {
			want := GELU.reference(float64(x[i]))
			require.InEpsilon(t, want, float64(y[i]), 1e-5)
		}
	})
}

func TestActivationsOfSpecialValues(t *testing.T) {
	inf := float32(math.Inf(1))
	each(t, func(t *testing.T) {
		for act := range actCount {
			x := []float32{0, inf, float32(math.NaN()), 1e4, -1e4, 50, -50, 1e20, -1e20, 2e38, -2e38}
			y := make([]float32, len(x))
			Activate(act, y, x)
			require.Equal(t, float32(0), y[0])
			require.Equal(t, inf, y[1])
			require.True(t, y[2] != y[2])
			require.Equal(t, float32(1e4), y[3])
			require.InDelta(t, 0, y[4], 0)
			require.Equal(t, float32(50), y[5])
			require.InDelta(t, 0, y[6], 1e-15)
			if act == SiLU { // the cubes of the others are infinite
				require.Equal(t, []float32{1e20, 0, 2e38, 0}, []float32{y[7], -y[8], y[9], -y[10]})
			}
		}
	})
}

func TestGLU(t *testing.T) {
	each(t, func(t *testing.T) {
		for act := range actCount {
			for _, n := range lengths() {
				g, u, dy := random(1, n, 2), random(2, n, 2), random(3, n, 2)
				f := func(x []float32, i int) float64 { return float64(x[i]) }
				scale := func(v ...float64) func(int) float64 {
					return func(i int) float64 {
						return max(1, math.Abs(f(g, i))) * max(0.1, math.Abs(f(u, i))) * max(0.1, math.Abs(f(dy, i)))
					}
				}
				out, all := guarded(n)
				GLU(act, out, g, u)
				requireUlps(t, 4, func(i int) float64 { return act.reference(f(g, i)) * f(u, i) },
					func(i int) float64 { return f(g, i) * f(u, i) }, out)
				requireGuards(t, all)

				dg, all1 := guarded(n)
				du, all2 := guarded(n)
				GLUGrad(act, dg, du, dy, g, u)
				requireUlps(t, 8, func(i int) float64 { return f(dy, i) * f(u, i) * act.referenceSlope(f(g, i)) }, scale(), dg)
				requireUlps(t, 8, func(i int) float64 { return f(dy, i) * act.reference(f(g, i)) }, scale(), du)
				requireGuards(t, all1)
				requireGuards(t, all2)

				// In place over its own arguments.
				a, b := append([]float32{}, g...), append([]float32{}, u...)
				GLUGrad(act, a, b, dy, a, b)
				require.Equal(t, dg, a)
				require.Equal(t, du, b)
			}
		}
	})
}
