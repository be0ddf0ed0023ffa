package gemm_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/lorafuse/lorafuse/backend/cpu/internal/gemm"
	"github.com/lorafuse/lorafuse/backend/cpu/internal/pool"
)

// eachISA runs a test with every instruction set of this machine.
func eachISA(t *testing.T, workers int, test func(t *testing.T, e *gemm.Engine)) {
	for _, isa := range gemm.Supported() {
		t.Run(isa.String(), func(t *testing.T) {
			p := pool.New(workers)
			defer p.Close()
			test(t, gemm.NewISA(p, isa))
		})
	}
}

// dimension draws sizes at which something begins or ends: 0, 1, around
// powers of two, primes.
func dimension(most int) *rapid.Generator[int] {
	special := []int{0, 1, 2, 3, 5, 7, 8, 9, 13, 15, 16, 17, 31, 32, 33, 37, 63, 64, 65, 67, 97, 127, 128, 131, 251, 257, 512, 521, 1031, 2053}
	for special[len(special)-1] > most {
		special = special[:len(special)-1]
	}
	return rapid.OneOf(rapid.SampledFrom(special), rapid.IntRange(0, min(40, most)))
}

func drawProblem(t *rapid.T) *problem {
	m, n := dimension(131).Draw(t, "M"), dimension(131).Draw(t, "N")
	r := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
	p := &problem{}
	ldc := n + rapid.SampledFrom([]int{0, 0, 1, 5}).Draw(t, "pad C")
	p.call = gemm.Call{M: m, N: n, LDC: ldc, Accumulate: rapid.Bool().Draw(t, "accumulate")}
	p.before = make([]float32, m*ldc)
	for i := range p.before {
		p.before[i] = float32(r.NormFloat64())
		if !p.call.Accumulate || i%max(1, ldc) >= n {
			p.before[i] = float32(math.NaN())
		}
	}
	if rapid.Bool().Draw(t, "bias") {
		p.call.Bias = make([]float32, n)
		for i := range p.call.Bias {
			p.call.Bias[i] = float32(r.NormFloat64())
		}
	}
	elems := rapid.SampledFrom([]gemm.Elem{gemm.F32, gemm.F32, gemm.BF16, gemm.F16})
	for x := range rapid.IntRange(0, 6).Draw(t, "pairs") {
		k := dimension(521).Draw(t, fmt.Sprintf("K%d", x))
		a := newMatrix(r, m, k, elems.Draw(t, "elem A"), rapid.Bool().Draw(t, "Aᵀ"), rapid.IntRange(0, 2).Draw(t, "pad A"))
		b := newMatrix(r, k, n, elems.Draw(t, "elem B"), rapid.Bool().Draw(t, "Bᵀ"), rapid.IntRange(0, 2).Draw(t, "pad B"))
		p.a, p.b = append(p.a, a), append(p.b, b)
		alpha := rapid.SampledFrom([]float32{1, 1, 2, -0.3, 0}).Draw(t, "α")
		p.pairs = append(p.pairs, gemm.Pair{A: a.Matrix, B: b.Matrix, K: k, Alpha: alpha})
	}
	p.call.Pairs = p.pairs
	return p
}

// run computes the problem on e and returns C.
func (p *problem) run(do func(*gemm.Call)) []float32 {
	c := p.call
	c.C = append([]float32(nil), p.before...)
	do(&c)
	return c.C
}

// requireRight compares C with the reference, and what lies between its rows
// with what was there.
func (p *problem) requireRight(t require.TestingT, c []float32) {
	depth := 0
	for _, pair := range p.pairs {
		depth += pair.K
	}
	// A float32 sum of n terms in some order errs by at most n·2⁻²⁴ of the
	// sum of magnitudes; blocked sums stay far below.
	tol := (8 + math.Sqrt(float64(depth))) * 0x1p-24
	for i := range p.call.M {
		for j := range p.call.LDC {
			got := c[i*p.call.LDC+j]
			if j >= p.call.N {
				require.True(t, got != got, "row %d: element %d beyond N = %d was written", i, j, p.call.N)
				continue
			}
			want, size := p.reference(i, j)
			if d := math.Abs(float64(got) - want); !(d <= tol*size) {
				require.Failf(t, "wrong element", "C[%d,%d] = %v, want %v ± %v", i, j, got, want, tol*size)
			}
		}
	}
}

func TestAgainstReference(t *testing.T) {
	eachISA(t, 3, func(t *testing.T, e *gemm.Engine) {
		rapid.Check(t, func(t *rapid.T) {
			p := drawProblem(t)
			c := p.run(e.Run)
			p.requireRight(t, c)
			requireSameBits(t, c, p.run(func(c *gemm.Call) { e.Serial(0, c) }))
		})
	})
}

func requireSameBits(t require.TestingT, want, got []float32) {
	require.Len(t, got, len(want))
	for i := range want {
		if math.Float32bits(want[i]) != math.Float32bits(got[i]) {
			require.Failf(t, "different bits", "element %d is %v, want %v", i, got[i], want[i])
		}
	}
}
