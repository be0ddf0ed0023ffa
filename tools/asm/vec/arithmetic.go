package main

import (
	"math"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// fixed adapts a formula that needs nothing before the loop to a setup.
func fixed(f func(v *isa, x []val) []val) func(v *isa) func(x []val) []val {
	return func(v *isa) func(x []val) []val {
		return func(x []val) []val { return f(v, x) }
	}
}

func arithmetic(v *isa) {
	binary := func(name, doc string, f func(a, b val) val) {
		elementwise{
			name: name, signature: "dst, a, b []float32", doc: doc,
			in: []string{"a", "b"}, out: []string{"dst"}, unroll: [2]int{4, 4},
			setup: fixed(func(_ *isa, x []val) []val { return []val{f(x[0], x[1])} }),
		}.emit(v)
	}
	binary("add", "is dst = a + b.", v.add)
	binary("sub", "is dst = a − b.", v.sub)
	binary("mul", "is dst = a·b.", v.mul)
	binary("div", "is dst = a/b.", v.div)
	elementwise{
		name: "fma", signature: "dst, a, b []float32", doc: "is dst += a·b.",
		in: []string{"dst", "a", "b"}, out: []string{"dst"}, unroll: [2]int{4, 4},
		setup: fixed(func(v *isa, x []val) []val {
			v.addMul(x[0], x[1], x[2])
			return x[:1]
		}),
	}.emit(v)
	elementwise{
		name: "axpy", signature: "dst, x []float32, a float32", doc: "is dst += a·x.",
		in: []string{"dst", "x"}, out: []string{"dst"}, unroll: [2]int{4, 4},
		setup: func(v *isa) func(x []val) []val {
			a := v.scalar("a")
			return func(x []val) []val {
				v.addMul(x[0], a, x[1])
				return x[:1]
			}
		},
	}.emit(v)
	elementwise{
		name: "scale", signature: "dst, x []float32, a float32", doc: "is dst = a·x.",
		in: []string{"x"}, out: []string{"dst"}, unroll: [2]int{4, 4},
		setup: func(v *isa) func(x []val) []val {
			a := v.scalar("a")
			return one(func(x []val) val { return v.mul(x[0], a) })
		},
	}.emit(v)
}

func reductions(v *isa) {
	sum := reduction{
		start: (*isa).zero, fold: (*isa).add, side: [2]int{4, 2},
	}
	kernel := func(name, signature, doc string, in []string, setup func(v *isa) func(acc val, x []val, mask reg.Register) []val) {
		r := sum
		r.name, r.signature, r.doc, r.in, r.setup = name, signature, doc, in, setup
		r.emit(v)
	}
	step := func(f func(v *isa, acc val, x []val)) func(v *isa) func(acc val, x []val, mask reg.Register) []val {
		return func(v *isa) func(acc val, x []val, mask reg.Register) []val {
			return func(acc val, x []val, _ reg.Register) []val {
				f(v, acc, x)
				return nil
			}
		}
	}
	kernel("sum", "x []float32) (_ float32", "is Σ x.", []string{"x"},
		step(func(v *isa, acc val, x []val) { v.addTo(acc, x[0]) }))
	kernel("sumSquares", "x []float32) (_ float32", "is Σ x².", []string{"x"},
		step(func(v *isa, acc val, x []val) { v.addMul(acc, x[0], x[0]) }))
	kernel("dot", "a, b []float32) (_ float32", "is Σ a·b.", []string{"a", "b"},
		step(func(v *isa, acc val, x []val) { v.addMul(acc, x[0], x[1]) }))
	sum.side[0] = 2 // the product needs registers
	kernel("dot3", "a, b, c []float32) (_ float32", "is Σ (a·b)·c.", []string{"a", "b", "c"},
		step(func(v *isa, acc val, x []val) { v.addMul(acc, v.mul(x[0], x[1]), x[2]) }))
	kernel("sumSquaredDeviations", "x []float32, mean float32) (_ float32", "is Σ (x − mean)².", []string{"x"},
		func(v *isa) func(acc val, x []val, mask reg.Register) []val {
			mean := v.scalar("mean")
			return func(acc val, x []val, mask reg.Register) []val {
				d := v.selected(v.sub(x[0], mean), mask)
				v.addMul(acc, d, d)
				return nil
			}
		})
	maximum(v)
}

// addTo emits acc += x.
func (v *isa) addTo(acc, x val) {
	for i := range acc {
		VADDPS(x.at(i), acc[i], acc[i])
	}
}

// maximum emits a reduction that propagates NaN, unlike the instruction: lanes that contain one are recorded
// separately.
func maximum(v *isa) {
	var met reg.Register
	reduction{
		name: "max", signature: "x []float32) (_ float32",
		doc: "is the largest x, NaN if there is one, −Inf if x is empty.",
		in:  []string{"x"}, side: [2]int{4, 2},
		start: func(v *isa) reg.VecVirtual {
			return v.copy(val{literalOp(v, float32(math.Inf(-1)))}, 1)[0].(reg.VecVirtual)
		},
		fold: (*isa).max,
		setup: func(v *isa) func(acc val, x []val, mask reg.Register) []val {
			const unordered = 3
			if v == avx512 {
				met = K()
				KXORW(met, met, met)
			} else {
				met = v.zero()
			}
			low := val{literalOp(v, float32(math.Inf(-1)))}
			return func(acc val, x []val, mask reg.Register) []val {
				y := x[0]
				for i := range y {
					if v == avx512 {
						k := K()
						VCMPPS(U8(unordered), y[i], y[i], k)
						KORW(k, met, met)
					} else {
						c := v.reg()
						VCMPPS(U8(unordered), y[i], y[i], c)
						VORPS(c, met, met)
					}
				}
				if mask != nil {
					// Lanes without an element must not count as 0.
					masked := v.regs(1)
					if v == avx512 {
						VBLENDMPS(y[0], low[0], mask, masked[0])
					} else {
						b := v.copy(low, 1)
						VBLENDVPS(mask, y[0], b[0], masked[0])
					}
					y = masked
				}
				for i := range acc {
					VMAXPS(y[i], acc[i], acc[i])
				}
				return nil
			}
		},
		finish: func(v *isa, result reg.VecVirtual) {
			if v == avx512 {
				KTESTW(met, met)
			} else {
				VPTEST(met, met)
			}
			JZ(LabelRef("clean"))
			VBROADCASTSS(literal(0x7fc00000), result)
			Label("clean")
		},
	}.emit(v)
}

// literalOp returns a constant, in a register with AVX-512.
func literalOp(v *isa, f float32) Op { return v.word(math.Float32bits(f))[0] }
