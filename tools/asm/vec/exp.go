package main

import (
	"math"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// exponential computes eˣ = 2ⁿ·eʳ with n = round(x/ln 2) and |r| ≤ ln 2/2.
//
// ln 2 is subtracted in two parts; the first has so few bits that n times it is exact. eʳ = 1 + r + r²·q(r), where q
// has degree 4 and was fitted (Lawson's iteration) for the least relative error of eʳ, 3e-9. 2ⁿ is applied with gradual
// underflow and overflow to infinity.
type exponential struct {
	*isa
	log2e, ln2hi, ln2lo, one val
	q                        []val // highest degree first
	bias                     val   // AVX2: 127 as an integer
}

var expQ = []float64{0.0013814539415761828, 0.00836874544620514, 0.04166838899254799, 0.1666652113199234, 0.4999999403953552}

func (v *isa) exponential() *exponential {
	e := &exponential{
		isa:   v,
		log2e: v.constant(math.Log2E),
		ln2hi: v.constant(0.693359375),
		ln2lo: v.constant(math.Ln2 - 0.693359375),
		one:   v.constant(1),
	}
	for _, c := range expQ {
		e.q = append(e.q, v.constant(c))
	}
	if v == avx2 {
		e.bias = v.word(127)
	}
	return e
}

// of computes eˣ. It overwrites the registers of x.
func (e *exponential) of(x val) val {
	// Beyond these bounds the result is 0 or infinite. The order of the operands preserves NaN.
	x = e.max(e.copy(e.constant(-104.5), 1), x)
	if e.isa == avx2 {
		x = e.min(e.copy(e.constant(89), 1), x)
	}
	n := e.round(e.mul(x, e.log2e))
	e.subMul(x, n, e.ln2hi)
	e.subMul(x, n, e.ln2lo)
	p := e.copy(e.q[0], len(x))
	for _, c := range e.q[1:] {
		e.mulAdd(p, x, c)
	}
	e.mulAdd(p, x, e.one)
	e.mulAdd(p, x, e.one)
	return e.scale(p, n)
}

// scale computes p·2ⁿ.
func (e *exponential) scale(p, n val) val {
	if e.isa == avx512 {
		// If x is large, p and the result are infinite; NaN is preserved.
		dst := e.regs(len(p))
		for i := range dst {
			VSCALEFPS(n[i], p[i], dst[i])
		}
		return dst
	}
	// Use two factors of about 2^(n/2), since 2ⁿ itself may not be a normal number. The first product is exact.
	for i := range p {
		whole, half := YMM(), YMM()
		VCVTPS2DQ(n[i], whole)
		VPSRAD(U8(1), whole, half)
		VPSUBD(half, whole, whole)
		for _, h := range []reg.VecVirtual{half, whole} {
			VPADDD(e.bias[0], h, h)
			VPSLLD(U8(23), h, h)
			VMULPS(h, p[i], p[i])
		}
	}
	return p
}

func exponentials(v *isa) {
	elementwise{
		name: "exp", signature: "dst, x []float32", doc: "is dst = eˣ.",
		in: []string{"x"}, out: []string{"dst"}, unroll: [2]int{2, 4},
		setup: func(v *isa) func(x []val) []val {
			e := v.exponential()
			return one(func(x []val) val { return e.of(x[0]) })
		},
	}.emit(v)
	elementwise{
		name: "expAffine", signature: "dst, x []float32, scale, shift, factor float32",
		doc: "is dst = factor·exp(scale·x − shift).",
		in:  []string{"x"}, out: []string{"dst"}, unroll: [2]int{2, 4},
		setup: func(v *isa) func(x []val) []val {
			e := v.exponential()
			scale, shift, factor := v.scalar("scale"), v.scalar("shift"), v.scalar("factor")
			return one(func(x []val) val {
				v.mulSub(x[0], scale, shift)
				return v.mul(e.of(x[0]), factor)
			})
		},
	}.emit(v)
	total := reduction{
		name: "expTotal", signature: "x []float32, scale, shift float32) (_ float32",
		doc: "is Σ exp(scale·x − shift).",
		in:  []string{"x"}, side: [2]int{2, 2},
		start: (*isa).zero, fold: (*isa).add,
		setup: func(v *isa) func(acc val, x []val, mask reg.Register) []val {
			e := v.exponential()
			scale, shift := v.scalar("scale"), v.scalar("shift")
			return func(acc val, x []val, mask reg.Register) []val {
				v.mulSub(x[0], scale, shift)
				y := v.selected(e.of(x[0]), mask)
				v.addTo(acc, y)
				return []val{y}
			}
		},
	}
	keep := total
	keep.name, keep.signature = "expSum", "dst, x []float32, scale, shift float32) (_ float32"
	keep.doc, keep.out = "is dst = exp(scale·x − shift) and returns Σ dst.", []string{"dst"}
	discard := total.setup
	total.setup = func(v *isa) func(acc val, x []val, mask reg.Register) []val {
		step := discard(v)
		return func(acc val, x []val, mask reg.Register) []val {
			step(acc, x, mask)
			return nil
		}
	}
	keep.emit(v)
	total.emit(v)
}
