package gemm_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"sync"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/lorafuse/lorafuse/backend/cpu/internal/gemm"
	"github.com/lorafuse/lorafuse/backend/cpu/internal/pool"
)

// engine is an engine on a pool of its own.
func engine(t testing.TB, workers int, isa gemm.ISA) *gemm.Engine {
	p := pool.New(workers)
	t.Cleanup(p.Close)
	e := gemm.NewISA(p, isa&^rounding)
	if isa&rounding != 0 {
		e.SetPrecision(gemm.BF16)
	}
	return e
}

// rounding is an instruction set with products of bfloat16.
const rounding = 1 << 7

// eachISA runs a test with every instruction set of this machine.
func eachISA(t *testing.T, test func(t *testing.T, isa gemm.ISA)) {
	for _, isa := range gemm.Supported() {
		t.Run(isa.String(), func(t *testing.T) { test(t, isa) })
	}
}

// tooSlow reports whether large products are left to LORAFUSE_LONG=1: those of plain Go.
func tooSlow(isa gemm.ISA) bool { return isa == gemm.Portable && os.Getenv("LORAFUSE_LONG") == "" }

// eachPrecision is eachISA, and once more with products of bfloat16 where the
// machine has them.
func eachPrecision(t *testing.T, test func(t *testing.T, isa gemm.ISA)) {
	eachISA(t, test)
	for _, isa := range gemm.Supported() {
		if engine(t, 1, isa|rounding).Rounds() {
			t.Run(isa.String()+" rounding", func(t *testing.T) { test(t, isa|rounding) })
		}
	}
}

// dimension draws sizes at which something begins or ends: 0, 1, around
// powers of two, primes.
func dimension(least, most int) *rapid.Generator[int] {
	var special []int
	for _, d := range []int{0, 1, 2, 3, 5, 7, 8, 9, 11, 12, 13, 15, 16, 17, 24, 31, 32, 33, 37, 63, 64, 65, 67, 97, 127, 128, 129, 131, 251, 256, 257, 511, 512, 513, 521, 1031, 2053} {
		if least <= d && d <= most {
			special = append(special, d)
		}
	}
	return rapid.OneOf(rapid.SampledFrom(special), rapid.IntRange(least, min(least+40, most)))
}

var (
	elems   = rapid.SampledFrom([]gemm.Elem{gemm.F32, gemm.F32, gemm.BF16, gemm.F16})
	alphas  = rapid.SampledFrom([]float32{1, 1, 2, -0.3, 0})
	paddeds = rapid.SampledFrom([]int{0, 0, 1, 3, 16})
)

// drawProblem draws any call, or one of those that have a way of their own:
// one row, few rows, rows of A with rows or columns of B, few columns, few columns with a
// transposed A, deep, so deep that they are summed in pieces, and of enough rows for
// B to be taken apart.
func drawProblem(t *rapid.T) *problem {
	r := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
	m, n := dimension(0, 131), dimension(0, 131)
	k, pairs := dimension(0, 131), 6
	elemA, elemB, alpha, transA, transB := elems, elems, alphas, rapid.Bool(), rapid.Bool()
	switch rapid.SampledFrom([]string{"any", "one row", "few rows", "rows in place", "deep rows in place", "lying across", "few columns", "transposed result", "long k", "in parts", "apart", "tiles transposed", "as it lies", "tiles of few columns"}).Draw(t, "kind") {
	case "one row": // long k, and short as that of adapters
		m, n, k, pairs = dimension(1, 1), dimension(1, 257), rapid.OneOf(dimension(1, 131), dimension(512, 2309)), 3
		transB = rapid.Just(true)
	case "few rows":
		m, k = dimension(1, 8), dimension(0, 521)
	case "rows in place":
		m, n, k, pairs = dimension(2, 8), dimension(8, 131), dimension(0, 257), 3
		transB = rapid.Just(true)
	case "deep rows in place":
		m, n, k, pairs = dimension(1, 65), dimension(8, 13), dimension(512, 1100), 1
		transB = rapid.Just(true)
	case "lying across":
		m, n, k, pairs = dimension(9, 33), dimension(1, 97), dimension(1, 257), 2
		elemA, transA, transB = rapid.Just(gemm.F32), rapid.Just(false), rapid.Just(false)
	case "few columns":
		m, n, k = dimension(9, 67), dimension(1, 64), dimension(100, 1031)
		elemA, transA = rapid.Just(gemm.F32), rapid.Just(false)
	case "transposed result":
		m, n = dimension(129, 257), dimension(1, 64)
		transA = rapid.Just(true)
	case "in parts":
		m, n, k, pairs = dimension(1, 32), dimension(128, 257), dimension(1000, 2053), 2
		elemA, transA, transB = rapid.Just(gemm.F32), rapid.Just(true), rapid.Just(false)
	case "long k":
		m, n, k, pairs = dimension(1, 33), dimension(1, 67), dimension(512, 2053), 2
	case "apart":
		m, n, k, pairs = dimension(48, 163), dimension(1, 131), dimension(129, 701), 2
		elemA, transA = rapid.Just(gemm.F32), rapid.Just(false)
	case "tiles transposed":
		m, n, k, pairs = dimension(9, 127), dimension(65, 197), dimension(129, 2309), 2
		elemA, transA, transB = rapid.Just(gemm.F32), rapid.Just(false), rapid.Just(true)
	case "as it lies":
		m, n, k, pairs = rapid.OneOf(dimension(2, 8), dimension(9, 64)), dimension(65, 197), rapid.OneOf(dimension(1, 131), dimension(129, 2309)), 2
		elemA, elemB, alpha, transA, transB = rapid.Just(gemm.F32), rapid.Just(gemm.BF16), rapid.Just(float32(1)), rapid.Just(false), rapid.Just(true)
	case "tiles of few columns":
		m, n, k, pairs = dimension(64, 131), dimension(9, 64), dimension(129, 2309), 2
		elemA, elemB, transA = rapid.Just(gemm.F32), rapid.Just(gemm.F32), rapid.Just(false)
	}
	p := newProblem(r, m.Draw(t, "M"), n.Draw(t, "N"), paddeds.Draw(t, "pad C"), rapid.Bool().Draw(t, "accumulate"), rapid.Bool().Draw(t, "bias"))
	for range rapid.IntRange(0, pairs).Draw(t, "pairs") {
		k := k.Draw(t, "K")
		a := newMatrix(t, r, p.M, k, elemA.Draw(t, "elem A"), transA.Draw(t, "Aᵀ"), paddeds.Draw(t, "pad A"))
		b := newMatrix(t, r, k, p.N, elemB.Draw(t, "elem B"), transB.Draw(t, "Bᵀ"), paddeds.Draw(t, "pad B"))
		p.add(a, b, alpha.Draw(t, "α"))
	}
	return p
}

// Every shape, storage and combination is right, and the same to the last bit
// for any number of workers.
func TestAgainstReference(t *testing.T) {
	eachPrecision(t, func(t *testing.T, isa gemm.ISA) {
		var engines []*gemm.Engine
		for _, workers := range []int{1, 2, 3, 7} {
			engines = append(engines, engine(t, workers, isa))
		}
		rapid.Check(t, func(t *rapid.T) {
			p := drawProblem(t)
			c := p.compute(t, engines[0].Run)
			p.rounded = isa&rounding != 0
			p.requireRight(t, c)
			for _, e := range engines[1:] {
				requireSameBits(t, c, p.compute(t, e.Run))
			}
			requireSameBits(t, c, p.compute(t, func(c *gemm.Call) { engines[2].Serial(1, c) }))
			requireSameBits(t, c, p.compute(t, func(c *gemm.Call) { engines[2].Serial(-1, c) }))
		})
	})
}

// The shapes are large enough that all workers take part in every way that a
// call may go.
func TestManyWorkers(t *testing.T) {
	eachPrecision(t, func(t *testing.T, isa gemm.ISA) {
		r := rand.New(rand.NewPCG(1, 1))
		for _, s := range []struct{ m, n, k int }{{40, 300, 600}, {40, 300, 1100}, {20, 1100, 1600}, {16, 2100, 300}, {3, 700, 300}, {400, 20, 200}, {150, 90, 90}} {
			for trans := range 4 {
				p := newProblem(r, s.m, s.n, 0, false, true)
				p.add(newMatrix(t, r, s.m, s.k, gemm.F32, trans&1 != 0, 0), newMatrix(t, r, s.k, s.n, gemm.BF16, trans&2 != 0, 0), 1)
				p.add(newMatrix(t, r, s.m, 8, gemm.F32, trans&1 != 0, 0), newMatrix(t, r, 8, s.n, gemm.F32, trans&2 != 0, 0), 2)
				c := p.compute(t, engine(t, 1, isa).Run)
				for _, workers := range []int{2, 3, 7} {
					requireSameBits(t, c, p.compute(t, engine(t, workers, isa).Run), s, trans, workers)
				}
			}
		}
	})
}

// Rows may be longer than what any way multiplies between two updates of C.
func TestLongRows(t *testing.T) {
	eachPrecision(t, func(t *testing.T, isa gemm.ISA) {
		e := engine(t, 2, isa)
		r := rand.New(rand.NewPCG(3, 3))
		for _, s := range []struct{ m, k, pad int }{{1, 17000, 0}, {2, 8231, 0}, {8, 8300, 5}, {33, 4139, 3}, {66, 2100, 3}} {
			for i, n := range []int{70, 40} {
				elem := []gemm.Elem{gemm.BF16, gemm.F32}[i]
				p := newProblem(r, s.m, n, 0, false, false)
				p.add(newMatrix(t, r, s.m, 8, gemm.F32, false, 0), newMatrix(t, r, 8, n, gemm.F32, true, 0), 2)
				p.add(newMatrix(t, r, s.m, s.k, gemm.F32, false, 0), newMatrix(t, r, s.k, n, elem, true, s.pad), 1)
				p.rounded = isa&rounding != 0
				p.requireRight(t, p.compute(t, e.Run))
			}
		}
	})
}

// A is packed block by block where it is large.
func TestBlocksOfRows(t *testing.T) {
	eachPrecision(t, func(t *testing.T, isa gemm.ISA) {
		e := engine(t, 2, isa)
		r := rand.New(rand.NewPCG(6, 6))
		p := newProblem(r, 70, 100, 1, true, true)
		p.add(newMatrix(t, r, 70, 600, gemm.F32, false, 0), newMatrix(t, r, 600, 100, gemm.F32, true, 0), 1)
		p.add(newMatrix(t, r, 70, 13, gemm.F32, true, 0), newMatrix(t, r, 13, 100, gemm.BF16, false, 0), 1)
		whole := p.compute(t, e.Run)
		for _, limit := range []int{1, 613 * 12, 613 * 30, 613 * 69} {
			e.PackAtMost(limit)
			requireSameBits(t, whole, p.compute(t, e.Run), limit)
		}
	})
}

// A row does not change with the number of rows, as long as the call goes the
// same way.
func TestRowsAreIndependent(t *testing.T) {
	eachPrecision(t, func(t *testing.T, isa gemm.ISA) {
		e := engine(t, 2, isa)
		r := rand.New(rand.NewPCG(2, 2))
		for _, s := range []struct {
			few, many, n, k int
			trans           bool
		}{{2, 8, 70, 130, true}, {9, 32, 70, 1100, true}, {1, 7, 70, 700, false}, {65, 150, 70, 700, true}, {9, 16, 70, 1100, false}, {33, 64, 70, 700, false}, {9, 16, 20, 1100, false}, {65, 150, 20, 700, true}} {
			many := newProblem(r, s.many, s.n, 0, false, false)
			a, b := newMatrix(t, r, s.many, s.k, gemm.F32, false, 0), newMatrix(t, r, s.k, s.n, gemm.BF16, s.trans, 0)
			many.add(a, b, 1)
			few := newProblem(r, s.few, s.n, 0, false, false)
			few.add(a, b, 1)
			requireSameBits(t, many.compute(t, e.Run)[:s.few*s.n], few.compute(t, e.Run), s)
		}
	})
}

// All values of both 16-bit formats are widened exactly, by every kernel.
func TestWidening(t *testing.T) {
	all := make([]uint16, 1<<16)
	for i := range all {
		all[i] = uint16(i)
	}
	want := map[gemm.Elem][]float64{gemm.F16: make([]float64, len(all)), gemm.BF16: make([]float64, len(all))}
	for i, h := range all {
		want[gemm.F16][i] = fromF16(h)
		want[gemm.BF16][i] = float64(math.Float32frombits(uint32(h) << 16))
	}
	eachISA(t, func(t *testing.T, isa gemm.ISA) {
		e := engine(t, 1, isa)
		for elem, want := range want {
			for _, m := range []int{1, 2, 9} { // from B as it lies, in two ways, and packed
				for _, b := range []gemm.Matrix{{Stride: len(all)}, {Stride: 1, Trans: true}} {
					b.Data, b.Elem = unsafe.Pointer(&all[0]), elem
					ones := []float32{1, 1, 1, 1, 1, 1, 1, 1, 1}
					c := gemm.Call{M: m, N: len(all), LDC: len(all), C: make([]float32, m*len(all)),
						Pairs: []gemm.Pair{{A: gemm.Of(ones, 1), B: b, K: 1, Alpha: 1}}}
					e.Run(&c)
					for i, got := range c.C {
						if want := want[i%len(all)]; !same(float64(got), want, 0) {
							require.Failf(t, "not exact", "%v 0x%04x (M=%d, Bᵀ=%v) is %v, want %v", elem, i%len(all), m, b.Trans, got, want)
						}
					}
				}
			}
		}
	})
}

// One NaN or infinity makes exactly those elements of C special that it is a
// term of.
func TestSpecialValues(t *testing.T) {
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	eachPrecision(t, func(t *testing.T, isa gemm.ISA) {
		e := engine(t, 2, isa)
		rapid.Check(t, func(t *rapid.T) {
			p := drawProblem(t)
			for x, pair := range p.Pairs {
				if p.M*p.N*pair.K == 0 {
					continue
				}
				i, k, j := rapid.IntRange(0, p.M-1).Draw(t, "i"), rapid.IntRange(0, pair.K-1).Draw(t, "k"), rapid.IntRange(0, p.N-1).Draw(t, "j")
				special := rapid.SampledFrom([]float32{nan, inf, -inf}).Draw(t, "special")
				if rapid.Bool().Draw(t, "in A") {
					p.a[x].put(i, k, special)
				} else {
					p.b[x].put(k, j, special)
				}
			}
			p.rounded = isa&rounding != 0
			p.requireRight(t, p.compute(t, e.Run))
		})
	})
}

// Long sums lose no more than a few units of the last place: 16384 terms of
// one sign, where one long float32 sum errs by hundreds.
func TestLongSums(t *testing.T) {
	const m, n, k = 65, 66, 16384
	r := rand.New(rand.NewPCG(3, 3))
	x, w, wt := make([]float32, m*k), make([]float32, k*n), make([]float32, n*k)
	for i := range x {
		x[i] = r.Float32()
	}
	for i := range w {
		w[i] = r.Float32()
		wt[i%n*k+i/n] = w[i]
	}
	var want [n]float64 // row 0
	for i, v := range w {
		want[i%n] += float64(x[i/n]) * float64(v)
	}
	eachISA(t, func(t *testing.T, isa gemm.ISA) {
		e := engine(t, 2, isa)
		for _, rows := range []int{1, 2, 9, m} {
			for _, cols := range []int{5, n} {
				for _, b := range []gemm.Matrix{gemm.Of(w, n), gemm.Of(wt, k).T()} {
					c := gemm.Call{M: rows, N: cols, LDC: cols, C: make([]float32, rows*cols),
						Pairs: []gemm.Pair{{A: gemm.Of(x, k), B: b, K: k, Alpha: 1}}}
					e.Run(&c)
					worst := 0.0
					for j, v := range c.C[:cols] {
						worst = max(worst, math.Abs(float64(v)-want[j])/want[j])
					}
					assert.Less(t, worst, 16*0x1p-24, "M=%d N=%d Bᵀ=%v", rows, cols, b.Trans)
				}
			}
		}
	})
}

// Engines are used by many goroutines at once, and from inside tasks of their
// own pool.
func TestConcurrentAndNested(t *testing.T) {
	p := pool.New(3)
	defer p.Close()
	e := gemm.New(p)
	r := rand.New(rand.NewPCG(4, 4))
	var problems []*problem
	var want [][]float32
	for _, s := range [][3]int{{64, 200, 100}, {2, 500, 300}, {300, 10, 200}, {300, 30, 100}} {
		x := newProblem(r, s[0], s[1], 0, true, true)
		x.add(newMatrix(t, r, s[0], s[2], gemm.F32, s[2] == 100, 0), newMatrix(t, r, s[2], s[1], gemm.F16, true, 0), 1)
		problems, want = append(problems, x), append(want, x.compute(t, e.Run))
	}
	check := func(i int, run func(*gemm.Call)) {
		x := problems[i%len(problems)]
		c := x.Call
		c.C = append([]float32(nil), x.before...)
		run(&c)
		requireSameBits(t, want[i%len(problems)], c.C)
	}
	var callers sync.WaitGroup
	for i := range 4 {
		callers.Go(func() {
			for j := range 20 {
				check(i+j, e.Run)
				p.Run(3, func(k int) { check(i+k, e.Run) })
				p.RunWorker(3, func(w, k int) { check(i+k, func(c *gemm.Call) { e.Serial(w, c) }) })
			}
		})
	}
	callers.Wait()
}

func TestNoAllocationsWhenWarm(t *testing.T) {
	eachPrecision(t, func(t *testing.T, isa gemm.ISA) {
		e := engine(t, 2, isa)
		r := rand.New(rand.NewPCG(5, 5))
		for _, s := range [][3]int{{64, 200, 100}, {2, 500, 300}, {300, 10, 200}, {300, 30, 100}} {
			p := newProblem(r, s[0], s[1], 0, false, false)
			p.add(newMatrix(t, r, s[0], s[2], gemm.F32, s[2] == 100, 0), newMatrix(t, r, s[2], s[1], gemm.BF16, false, 0), 1)
			p.C = p.before
			run := func() { e.Run(&p.Call); e.Serial(0, &p.Call) }
			for range 20 { // the tasks of two workers may first meet on a later run
				run()
			}
			assert.Zero(t, testing.AllocsPerRun(20, run), s)
		}
	})
}

func TestWrongCallsPanic(t *testing.T) {
	x := make([]float32, 100)
	pair := func(a, b gemm.Matrix, k int) []gemm.Pair { return []gemm.Pair{{A: a, B: b, K: k, Alpha: 1}} }
	e := engine(t, 1, gemm.Portable)
	for name, c := range map[string]gemm.Call{
		"negative shape":             {M: -1, N: 1},
		"rows of C are 3 apart":      {M: 2, N: 4, LDC: 3, C: x},
		"C has 100 elements":         {M: 11, N: 10, LDC: 10, C: x},
		"bias has 1 elements":        {M: 2, N: 4, LDC: 4, C: x, Bias: x[:1]},
		"pair 0 has K = -1":          {M: 2, N: 4, LDC: 4, C: x, Pairs: pair(gemm.Of(x, 4), gemm.Of(x, 4), -1)},
		"A of pair 0 has no data":    {M: 2, N: 4, LDC: 4, C: x, Pairs: pair(gemm.Matrix{}, gemm.Of(x, 4), 4)},
		"elements Elem(9)":           {M: 2, N: 4, LDC: 4, C: x, Pairs: pair(gemm.Matrix{Data: unsafe.Pointer(&x[0]), Elem: 9}, gemm.Of(x, 4), 4)},
		"rows of B of pair 0 are 3":  {M: 2, N: 4, LDC: 4, C: x, Pairs: pair(gemm.Of(x, 4), gemm.Of(x, 3), 4)},
		"rows of A of pair 0 are 1 ": {M: 2, N: 4, LDC: 4, C: x, Pairs: pair(gemm.Of(x, 1).T(), gemm.Of(x, 4), 4)},
	} {
		t.Run(name, func(t *testing.T) {
			defer func() { assert.Contains(t, fmt.Sprint(recover()), name) }()
			e.Run(&c)
		})
	}
}
