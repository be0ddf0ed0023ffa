package gemm_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/lorafuse/lorafuse/backend/cpu/internal/gemm"
	"github.com/lorafuse/lorafuse/internal/quant"
	"github.com/lorafuse/lorafuse/tensor"
)

var quantized = map[gemm.Elem]tensor.DType{gemm.Q8: tensor.Q8, gemm.NF4: tensor.NF4, gemm.FP4: tensor.FP4}

// newQuantized makes op(M) [rows,cols] of quantised values, rows of M being pad
// elements longer than needed. Behind the last block lies a page that must not
// be read.
func newQuantized(t cleaner, r *rand.Rand, rows, cols int, elem gemm.Elem, trans bool, pad int) *matrix {
	m := &matrix{cols: cols, values: make([]float64, rows*cols)}
	mr, mc := rows, cols
	if trans {
		mr, mc = cols, rows
	}
	m.Matrix = gemm.Matrix{Elem: elem, Stride: mc + pad, Trans: trans}
	values := make([]float32, max(0, mr*m.Stride-pad))
	for i := range values {
		values[i] = float32(r.NormFloat64() / 2)
	}
	d := quantized[elem]
	size := d.Bytes(len(values))
	m.Data = guarded(t, size)
	bytes := unsafe.Slice((*byte)(m.Data), size)
	if err := quant.Quantize(bytes, values, d); err != nil {
		t.Fatal(err)
	}
	if err := quant.Dequantize(values, bytes, 0, d); err != nil {
		t.Fatal(err)
	}
	for i := range rows {
		for j := range cols {
			x := i*m.Stride + j
			if trans {
				x = j*m.Stride + i
			}
			m.values[i*cols+j] = float64(values[x])
		}
	}
	return m
}

// drawQuantized is drawProblem with quantised factors B among the others.
func drawQuantized(t *rapid.T) *problem {
	r := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
	m, n, k := dimension(1, 67), dimension(1, 131), dimension(1, 260)
	elemA, transA, transB := elems, rapid.Bool(), rapid.Bool()
	blocked := rapid.SampledFrom([]int{64, 128, 192, 576, 1088})
	switch rapid.SampledFrom([]string{"any", "few rows", "whole blocks", "few columns", "apart", "tiles transposed"}).Draw(t, "kind") {
	case "few rows":
		m, n = dimension(1, 8), dimension(1, 257)
	case "whole blocks":
		m, k = dimension(1, 33), blocked
	case "few columns":
		n, k = dimension(1, 64), dimension(192, 521)
	case "apart":
		m, k = dimension(48, 131), dimension(129, 521)
		elemA, transA = rapid.Just(gemm.F32), rapid.Just(false)
	case "tiles transposed":
		m, n, k = dimension(25, 67), dimension(65, 131), dimension(129, 521)
		elemA, transA, transB = rapid.Just(gemm.F32), rapid.Just(false), rapid.Just(true)
	}
	p := newProblem(r, m.Draw(t, "M"), n.Draw(t, "N"), paddeds.Draw(t, "pad C"), rapid.Bool().Draw(t, "accumulate"), rapid.Bool().Draw(t, "bias"))
	for range rapid.IntRange(1, 3).Draw(t, "pairs") {
		k, trans := k.Draw(t, "K"), transB.Draw(t, "Bᵀ")
		a := newMatrix(t, r, p.M, k, elemA.Draw(t, "elem A"), transA.Draw(t, "Aᵀ"), paddeds.Draw(t, "pad A"))
		var b *matrix
		if elem := rapid.SampledFrom([]gemm.Elem{gemm.Q8, gemm.NF4, gemm.FP4, gemm.F32}).Draw(t, "elem B"); elem == gemm.F32 {
			b = newMatrix(t, r, k, p.N, elem, trans, 0)
		} else {
			b = newQuantized(t, r, k, p.N, elem, trans, rapid.SampledFrom([]int{0, 0, 1, 64}).Draw(t, "pad B"))
		}
		p.add(a, b, alphas.Draw(t, "α"))
	}
	return p
}

// Every shape, with blocks that begin with rows and amid them, is right, and the
// same to the last bit for any number of workers.
func TestQuantizedAgainstReference(t *testing.T) {
	eachPrecision(t, func(t *testing.T, isa gemm.ISA) {
		var engines []*gemm.Engine
		for _, workers := range []int{1, 2, 7} {
			engines = append(engines, engine(t, workers, isa))
		}
		rapid.Check(t, func(t *rapid.T) {
			p := drawQuantized(t)
			c := p.compute(t, engines[0].Run)
			p.rounded = isa&rounding != 0
			p.requireRight(t, c)
			for _, e := range engines[1:] {
				requireSameBits(t, c, p.compute(t, e.Run))
			}
			requireSameBits(t, c, p.compute(t, func(c *gemm.Call) { engines[1].Serial(1, c) }))
		})
	})
}

// Quantised weights that are widened are the same weights as floats, to the
// last bit, where both go the same way.
func TestQuantizedEqualsWidened(t *testing.T) {
	eachPrecision(t, func(t *testing.T, isa gemm.ISA) {
		e := engine(t, 2, isa)
		r := rand.New(rand.NewPCG(8, 8))
		for elem := range quantized {
			for _, s := range []struct{ m, n, k int }{{33, 70, 1100}, {37, 640, 130}, {40, 128, 1200}, {33, 600, 50}, {130, 600, 300}, {129, 90, 1100}} {
				for _, trans := range []bool{false, true} {
					p, wide := newProblem(r, s.m, s.n, 0, false, false), newProblem(r, s.m, s.n, 0, false, false)
					a := newMatrix(t, r, s.m, s.k, gemm.F32, false, 0)
					b := newQuantized(t, r, s.k, s.n, elem, trans, 0)
					p.add(a, b, 1)
					w := newMatrix(t, r, s.k, s.n, gemm.F32, trans, 0)
					for i := range s.k {
						for j := range s.n {
							w.put(i, j, float32(b.values[i*s.n+j]))
						}
					}
					wide.add(a, w, 1)
					requireSameBits(t, wide.compute(t, e.Run), p.compute(t, e.Run), elem, s, trans)
				}
			}
		}
	})
}

func TestQuantizedAllocatesNothingWhenWarm(t *testing.T) {
	eachPrecision(t, func(t *testing.T, isa gemm.ISA) {
		e := engine(t, 2, isa)
		r := rand.New(rand.NewPCG(9, 9))
		for _, s := range [][3]int{{64, 200, 128}, {2, 500, 320}, {2, 500, 300}, {30, 20, 256}} {
			for _, trans := range []bool{false, true} {
				p := newProblem(r, s[0], s[1], 0, false, false)
				p.add(newMatrix(t, r, s[0], s[2], gemm.F32, false, 0), newQuantized(t, r, s[2], s[1], gemm.NF4, trans, 0), 1)
				p.C = p.before
				run := func() { e.Run(&p.Call); e.Serial(0, &p.Call) }
				for range 20 {
					run()
				}
				assert.Zero(t, testing.AllocsPerRun(20, run), "%v %v", s, trans)
			}
		}
	})
}

func TestQuantizedFirstFactorPanics(t *testing.T) {
	x := make([]float32, 200)
	a := gemm.Matrix{Data: unsafe.Pointer(&x[0]), Elem: gemm.Q8, Stride: 4}
	defer func() { require.Contains(t, fmt.Sprint(recover()), "A of pair 0 has elements Q8") }()
	engine(t, 1, gemm.Portable).Run(&gemm.Call{M: 2, N: 4, LDC: 4, C: x, Pairs: []gemm.Pair{{A: a, B: gemm.Of(x, 4), K: 4, Alpha: 1}}})
}

// A row does not change with the number of rows.
func TestQuantizedRowsAreIndependent(t *testing.T) {
	eachISA(t, func(t *testing.T, isa gemm.ISA) {
		e := engine(t, 2, isa)
		r := rand.New(rand.NewPCG(10, 10))
		for elem := range quantized {
			for _, k := range []int{128, 700, 4160} {
				many := newProblem(r, 8, 70, 0, false, false)
				a, b := newMatrix(t, r, 8, k, gemm.F32, false, 0), newQuantized(t, r, k, 70, elem, true, 0)
				many.add(a, b, 1)
				whole := many.compute(t, e.Run)
				for _, rows := range []int{1, 2, 3, 5, 7} {
					few := newProblem(r, rows, 70, 0, false, false)
					few.add(a, b, 1)
					requireSameBits(t, whole[:rows*70], few.compute(t, e.Run), elem, k, rows)
				}
			}
		}
	})
}
