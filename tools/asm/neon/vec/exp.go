package main

import "math"

// exponential computes eˣ = 2ⁿ·eʳ with n = round(x/ln 2) and |r| ≤ ln 2/2. See tools/asm/vec, which uses the same
// constants.
type exponential struct {
	*kernel
	log2e, ln2hi, ln2lo, one val
	q                        []val // highest degree first
	least, most, bias        val
}

var expQ = []float64{0.0013814539415761828, 0.00836874544620514, 0.04166838899254799, 0.1666652113199234, 0.4999999403953552}

func (k *kernel) exponential() *exponential {
	e := &exponential{
		kernel: k,
		log2e:  k.constant(math.Log2E),
		ln2hi:  k.constant(0.693359375),
		ln2lo:  k.constant(math.Ln2 - 0.693359375),
		one:    k.constant(1),
		// Beyond these the result is 0 or infinite.
		least: k.near(bits(-104.5)),
		most:  k.near(bits(89)),
		bias:  k.near(127),
	}
	for _, c := range expQ {
		e.q = append(e.q, k.constant(c))
	}
	return e
}

// of computes eˣ.
func (e *exponential) of(x val) val {
	x = e.min(e.max(x, e.least), e.most) // NaN is preserved
	n := e.kernel.one(e.FRound, e.mul(x, e.log2e))
	e.subMul(x, n, e.ln2hi)
	e.subMul(x, n, e.ln2lo)
	p := e.mulAdd(x, e.q[0], e.q[1])
	for _, c := range e.q[2:] {
		p = e.mulAdd(p, x, c)
	}
	p = e.mulAdd(p, x, e.one)
	p = e.mulAdd(p, x, e.one)
	return e.scale(p, n)
}

// scale computes p·2ⁿ with two factors of about 2^(n/2), since 2ⁿ itself may not be a normal number. The first product
// is exact.
func (e *exponential) scale(p, n val) val {
	whole := e.kernel.one(e.FToInt, n)
	half := e.fresh(len(p))
	for i := range p {
		w, h := whole[i].reg, half[i].reg
		e.SignRight(h, w, 1)
		e.Sub(w, w, h)
		for _, r := range []V{h, w} {
			e.Add(r, r, e.bias[0].reg)
			e.ShiftLeft(r, r, 23)
		}
	}
	return e.mul(e.mul(p, half), whole)
}

func exponentials() {
	elementwise{
		name: "exp", signature: "dst, x []float32", doc: "is dst = eˣ.",
		in: []string{"x"}, out: []string{"dst"}, unroll: 4,
		setup: func(k *kernel) func(x []val) []val {
			e := k.exponential()
			return single(func(x []val) val { return e.of(x[0]) })
		},
	}.emit()
	elementwise{
		name: "expAffine", signature: "dst, x []float32, scale, shift, factor float32",
		doc: "is dst = factor·exp(scale·x − shift).",
		in:  []string{"x"}, out: []string{"dst"}, unroll: 4,
		setup: func(k *kernel) func(x []val) []val {
			e := k.exponential()
			affine, factor := k.affine(), k.scalar("factor")
			return single(func(x []val) val { return k.mul(e.of(affine(x[0])), factor) })
		},
	}.emit()
	total := func(name, signature, doc string, out []string) {
		reduction{
			name: name, signature: signature, doc: doc, in: []string{"x"}, out: out, side: 2,
			start: func(k *kernel) val { return k.near(0) },
			fold:  (*kernel).add,
			setup: func(k *kernel) func(acc val, x []val, mask val) []val {
				e, affine := k.exponential(), k.affine()
				return func(acc val, x []val, mask val) []val {
					y := k.selected(e.of(affine(x[0])), mask)
					k.addTo(acc, y)
					return []val{y}[:len(out)]
				}
			},
		}.emit()
	}
	total("expSum", "dst, x []float32, scale, shift float32) float32",
		"is dst = exp(scale·x − shift) and returns Σ dst.", []string{"dst"})
	total("expTotal", "x []float32, scale, shift float32) float32", "is Σ exp(scale·x − shift).", nil)
}

// affine returns the function scale·x − shift of two parameters.
func (k *kernel) affine() func(x val) val {
	scale := k.scalar("scale")
	minus := k.xor(k.scalar("shift"), k.near(1<<31))
	return func(x val) val { return k.mulAdd(x, scale, minus) }
}
