package vec

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// each runs a test with every implementation that this machine has.
func each(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	chosen := active
	defer func() { active = chosen }()
	for _, k := range available() {
		active = k
		t.Run(k.name, f)
	}
}

// lengths meet every combination of unrolled loop, single vectors and tail.
func lengths() []int {
	var l []int
	for n := range 70 {
		l = append(l, n)
	}
	return append(l, 95, 96, 127, 128, 129, 200, 255, 256, 257, 1000)
}

func random(seed uint64, n int, scale float64) []float32 {
	r := rand.New(rand.NewPCG(seed, 17))
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(r.NormFloat64() * scale)
	}
	return x
}

// guarded is a slice of n elements with canaries around it.
func guarded(n int) (x, all []float32) {
	all = make([]float32, n+32)
	for i := range all {
		all[i] = 12345
	}
	return all[16 : 16+n : 16+n], all
}

func requireGuards(t rapid.TB, all []float32) {
	t.Helper()
	for _, v := range append(append([]float32{}, all[:16]...), all[len(all)-16:]...) {
		require.Equal(t, float32(12345), v, "wrote outside of the slice")
	}
}

// ulps is the distance of got from want in units in the last place of the
// larger of want and floor.
func ulps(got float32, want, floor float64) float64 {
	if math.IsNaN(want) || math.IsInf(want, 0) || math.Abs(want) > math.MaxFloat32 {
		same := math.IsNaN(want) && got != got || float64(got) == float64(float32(want))
		if same {
			return 0
		}
		return math.Inf(1)
	}
	m := max(math.Abs(want), math.Abs(floor), 0x1p-126)
	_, e := math.Frexp(m)
	return math.Abs(float64(got)-want) / math.Ldexp(1, e-24)
}

func requireUlps(t *testing.T, limit float64, want func(i int) float64, floor func(i int) float64, got []float32) {
	t.Helper()
	worst, at := 0.0, -1
	for i, g := range got {
		f := 0.0
		if floor != nil {
			f = floor(i)
		}
		if u := ulps(g, want(i), f); u > worst || u != u {
			worst, at = u, i
		}
	}
	if worst > limit {
		require.Failf(t, "inaccurate", "%g ulps at %d: got %v, want %v", worst, at, got[at], want(at))
	}
}

var special = []float32{
	0, float32(math.Copysign(0, -1)), 1, -1, 0x1p-149, -0x1p-149, 0x1p-126, math.MaxFloat32, -math.MaxFloat32,
	float32(math.Inf(1)), float32(math.Inf(-1)), float32(math.NaN()),
	88.7, 88.73, 89, -87.3, -87.4, -103, -103.9, -104, -110, 200, -200,
}

func TestArithmetic(t *testing.T) {
	each(t, func(t *testing.T) {
		for _, n := range lengths() {
			a, b, c := random(1, n, 1), random(2, n, 1), random(3, n, 1)
			check := func(name string, limit float64, want func(i int) float64, run func(dst []float32)) {
				t.Helper()
				dst, all := guarded(n)
				copy(dst, c)
				run(dst)
				floor := func(i int) float64 { return math.Abs(float64(a[i])) + math.Abs(float64(c[i])) }
				if limit < 1 {
					floor = nil // a single operation is rounded correctly
				}
				requireUlps(t, limit, want, floor, dst)
				requireGuards(t, all)
			}
			f := func(x []float32, i int) float64 { return float64(x[i]) }
			check("add", 0.5, func(i int) float64 { return f(a, i) + f(b, i) }, func(d []float32) { Add(d, a, b) })
			check("sub", 0.5, func(i int) float64 { return f(a, i) - f(b, i) }, func(d []float32) { Sub(d, a, b) })
			check("mul", 0.5, func(i int) float64 { return f(a, i) * f(b, i) }, func(d []float32) { Mul(d, a, b) })
			check("div", 0.5, func(i int) float64 { return f(a, i) / f(b, i) }, func(d []float32) { Div(d, a, b) })
			check("fma", 2, func(i int) float64 { return f(a, i)*f(b, i) + f(c, i) }, func(d []float32) { FMA(d, a, b) })
			check("axpy", 2, func(i int) float64 { return 1.5*f(a, i) + f(c, i) }, func(d []float32) { Axpy(d, 1.5, a) })
			check("scale", 0.5, func(i int) float64 { return -3 * f(a, i) }, func(d []float32) { Scale(d, -3, a) })
			check("in place", 0.5, func(i int) float64 { return f(c, i) - f(b, i) }, func(d []float32) { Sub(d, d, b) })
		}
	})
}

func TestReductions(t *testing.T) {
	each(t, func(t *testing.T) {
		for _, n := range append(lengths(), 100_000) {
			a, b := random(4, n, 1), random(5, n, 1)
			var sum, abs, sq, dot, dotAbs, dev float64
			largest := math.Inf(-1)
			const mean = 0.25
			for i := range a {
				x, y := float64(a[i]), float64(b[i])
				sum += x
				abs += math.Abs(x)
				sq += x * x
				dot += x * y
				dotAbs += math.Abs(x * y)
				dev += (x - mean) * (x - mean)
				largest = max(largest, x)
			}
			limit := 4 + float64(n)/32/8
			require.LessOrEqual(t, ulps(Sum(a), sum, abs), limit)
			require.LessOrEqual(t, ulps(SumSquares(a), sq, 0), limit)
			require.LessOrEqual(t, ulps(Dot(a, b), dot, dotAbs), limit)
			require.LessOrEqual(t, ulps(active.sumSquaredDeviations(a, mean), dev, 0), limit)
			require.Equal(t, float32(largest), Max(a))
		}
	})
}

// The partial sums are the same for every instruction set.
func TestReductionOrderIsFixed(t *testing.T) {
	for _, n := range append(lengths(), 12345) {
		a := random(6, n, 1)
		want := portableSum(a)
		each(t, func(t *testing.T) { require.Equal(t, want, Sum(a)) })
	}
}

func TestMaxKeepsNaN(t *testing.T) {
	each(t, func(t *testing.T) {
		for _, n := range []int{1, 7, 8, 16, 33, 100} {
			for i := range n {
				x := random(7, n, 1)
				x[i] = float32(math.NaN())
				require.True(t, Max(x) != Max(x), "%d of %d", i, n)
				x[i] = 100
				require.Equal(t, float32(100), Max(x))
			}
		}
		assert.Equal(t, float32(math.Inf(-1)), Max([]float32{float32(math.Inf(-1))}))
	})
}

func TestExp(t *testing.T) {
	each(t, func(t *testing.T) {
		n := 1 << 16
		x := make([]float32, n)
		for i := range x {
			x[i] = -110 + 200*float32(i)/float32(n)
		}
		y := make([]float32, n)
		Apply(ExpOp, y, x)
		requireUlps(t, 1.2, func(i int) float64 { return math.Exp(float64(x[i])) }, nil, y)

		x = append(slices.Clone(special), 1e20, -1e20, -1e30, -2e30, 2e38, -2e38)
		y = make([]float32, len(x))
		Apply(ExpOp, y, x)
		requireUlps(t, 1.2, func(i int) float64 { return math.Exp(float64(x[i])) }, nil, y)
	})
}

func TestExpVariants(t *testing.T) {
	each(t, func(t *testing.T) {
		for _, n := range lengths() {
			x := random(8, n, 3)
			const scale, shift, factor = 0.75, 1.5, -0.3
			arg := func(i int) float64 { return scale*float64(x[i]) - shift }
			e := func(i int) float64 { return math.Exp(arg(i)) }
			total := 0.0
			for i := range x {
				total += e(i)
			}
			dst, all := guarded(n)
			ExpAffine(dst, x, scale, shift, factor)
			requireUlps(t, 8, func(i int) float64 { return factor * e(i) }, nil, dst)
			s := ExpSum(dst, x, scale, shift)
			requireUlps(t, 8, e, nil, dst)
			require.LessOrEqual(t, ulps(s, total, 0), 8.0)
			require.Equal(t, s, active.expTotal(x, scale, shift))
			requireGuards(t, all)
		}
	})
}

func TestUnary(t *testing.T) {
	each(t, func(t *testing.T) {
		for op := range unaryCount {
			for _, n := range lengths() {
				x := random(9, n, 2)
				for i := range special {
					if i < n && n > 60 {
						x[i] = special[i]
					}
				}
				dst, all := guarded(n)
				Apply(op, dst, x)
				want := func(i int) float64 {
					if op == Sigmoid {
						return 1 / (1 + math.Exp(-float64(x[i])))
					}
					if op == ExpOp {
						return math.Exp(float64(x[i]))
					}
					return scalarUnary[op](float64(x[i]))
				}
				requireUlps(t, 2, want, nil, dst)
				requireGuards(t, all)
			}
		}
	})
}

func TestNegKeepsSignOfZero(t *testing.T) {
	each(t, func(t *testing.T) {
		x := make([]float32, 20)
		Apply(Neg, x, x)
		for _, v := range x {
			require.True(t, math.Signbit(float64(v)))
		}
	})
}
