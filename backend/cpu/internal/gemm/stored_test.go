package gemm_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/backend/cpu/internal/gemm"
	"github.com/lorafuse/lorafuse/tensor"
)

// rounds are elements of bfloat16, each the nearest of x.
func rounds(x []float32) []uint16 {
	y := make([]uint16, len(x))
	for i, v := range x {
		y[i] = tensor.Float32ToBF16(v)
	}
	return y
}

// storing is an engine whose values may lie in bfloat16.
func storing(t testing.TB, workers int, isa gemm.ISA) *gemm.Engine {
	e := engine(t, workers, isa)
	e.SetPrecision(gemm.BF16)
	return e
}

// storedShapes are calls of every way: m, n, k, and which operands are transposed.
var storedShapes = []struct {
	m, n, k int
	ta, tb  bool
}{
	{1, 300, 700, false, true}, {5, 130, 520, false, true}, {40, 100, 1030, false, true}, {7, 90, 200, false, false},
	{100, 600, 300, false, true}, {300, 1100, 70, false, false}, {70, 40, 400, false, true}, {1100, 530, 40, false, true},
	{16, 260, 900, true, false}, {200, 30, 300, true, false}, {33, 9, 0, false, true}, {2500, 300, 20, false, true},
}

// TestStored: C in bfloat16 is what C in float32 is, rounded once, whatever it
// begins with, on any number of workers, for calls alone and together.
func TestStored(t *testing.T) {
	eachISA(t, func(t *testing.T, isa gemm.ISA) {
		one, three := storing(t, 1, isa), storing(t, 3, isa)
		r := rand.New(rand.NewPCG(5, 1))
		for _, s := range storedShapes {
			if s.m > 1000 && tooSlow(isa) {
				continue
			}
			for _, from := range []string{"", "f32", "bf16", "itself"} {
				if s.m > 1000 && (from == "f32" || from == "bf16") {
					continue
				}
				for _, elemA := range []gemm.Elem{gemm.F32, gemm.BF16} {
					p := newProblem(r, s.m, s.n, 0, from != "", r.IntN(2) == 0)
					p.add(newMatrix(t, r, s.m, s.k, elemA, s.ta, 0), newMatrix(t, r, s.k, s.n, gemm.BF16, s.tb, 0), 1)
					p.add(newMatrix(t, r, s.m, 8, gemm.F32, s.ta, 0), newMatrix(t, r, 8, s.n, gemm.F32, s.tb, 0), 2)
					if r.IntN(2) == 0 {
						p.Filter = thinned
					}
					begin := rounds(p.before)
					if from == "bf16" || from == "itself" {
						for i, v := range begin {
							p.before[i] = tensor.BF16ToFloat32(v)
						}
					}
					want := rounds(p.compute(t, one.Run))
					for name, run := range map[string]func(c *gemm.Call){
						"one": one.Run, "three": three.Run, "serial": func(c *gemm.Call) { one.Serial(0, c) },
						"all": func(c *gemm.Call) { three.RunAll([]*gemm.Call{c, c}) },
					} {
						if name == "all" && from == "itself" {
							continue
						}
						got := make([]uint16, s.m*s.n)
						c := p.Call
						c.C, c.Stored = nil, &gemm.Stored{Data: unsafe.Pointer(unsafe.SliceData(got)), From: gemm.Of(p.before, s.n)}
						switch from {
						case "bf16":
							c.Stored.From = gemm.Matrix{Data: unsafe.Pointer(unsafe.SliceData(begin)), Elem: gemm.BF16, Stride: s.n}
						case "itself":
							copy(got, begin)
							c.Stored.From = gemm.Matrix{Data: c.Stored.Data, Elem: gemm.BF16, Stride: s.n}
						}
						run(&c)
						require.Equal(t, want, got, fmt.Sprint(s, from, elemA, name))
					}
				}
			}
		}
	})
}

// TestWidened: operands of bfloat16 give what the same numbers in float32 do, with
// filters too.
func TestWidened(t *testing.T) {
	eachISA(t, func(t *testing.T, isa gemm.ISA) {
		e := storing(t, 2, isa)
		r := rand.New(rand.NewPCG(6, 1))
		for _, s := range []struct {
			m, n, k      int
			ta, tb       bool
			ofB          bool // B is widened, else A
			filterA, fil bool
		}{
			{m: 300, n: 16, k: 700, tb: true}, {m: 300, n: 16, k: 700, tb: true, filterA: true}, {m: 70, n: 50, k: 12000, tb: true},
			{m: 8, n: 600, k: 1100, ta: true, ofB: true}, {m: 16, n: 300, k: 2100, ta: true, ofB: true, fil: true}, {m: 600, n: 8, k: 1100, ta: true},
		} {
			a, b := newMatrix(t, r, s.m, s.k, gemm.F32, s.ta, 0), newMatrix(t, r, s.k, s.n, gemm.F32, s.tb, 0)
			wide := a
			if s.ofB {
				wide = b
			}
			for i, v := range wide.f32 {
				wide.f32[i] = math.Float32frombits(math.Float32bits(v) &^ 0xffff)
			}
			narrow := rounds(wide.f32)
			m := wide.Matrix
			m.Data, m.Elem = unsafe.Pointer(unsafe.SliceData(narrow)), gemm.BF16
			c := gemm.Call{M: s.m, N: s.n, LDC: s.n, Pairs: []gemm.Pair{{A: a.Matrix, B: b.Matrix, K: s.k, Alpha: 1}}}
			if s.filterA {
				c.Pairs[0].FilterA = thinned
			}
			if s.fil {
				c.Pairs[0].FilterB = thinned
			}
			want := make([]float32, s.m*s.n)
			c.C = want
			e.Run(&c)
			if s.ofB {
				c.Pairs[0].B = m
			} else {
				c.Pairs[0].A = m
			}
			c.C = make([]float32, s.m*s.n)
			require.True(t, e.Filters(&c))
			e.Run(&c)
			for i, v := range c.C { // the order of sums may depend on the type
				require.InDelta(t, want[i], v, 1e-5*math.Sqrt(float64(s.k)), fmt.Sprint(s, i))
			}
		}
	})
}
