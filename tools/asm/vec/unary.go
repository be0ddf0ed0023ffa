package main

func unary(v *isa) {
	kernel := func(name, doc string, setup func(v *isa) func(x []val) []val) {
		elementwise{
			name: name, signature: "dst, x []float32", doc: doc,
			in: []string{"x"}, out: []string{"dst"}, unroll: [2]int{2, 2}, setup: setup,
		}.emit(v)
	}
	kernel("neg", "is dst = −x.", func(v *isa) func(x []val) []val {
		sign := v.word(1 << 31)
		return one(func(x []val) val { return v.xor(x[0], sign) })
	})
	kernel("square", "is dst = x².", fixed(func(v *isa, x []val) []val { return []val{v.mul(x[0], x[0])} }))
	kernel("sqrt", "is dst = √x.", fixed(func(v *isa, x []val) []val { return []val{v.sqrt(x[0])} }))
	kernel("rsqrt", "is dst = 1/√x.", func(v *isa) func(x []val) []val {
		unit := v.near(1)
		return one(func(x []val) val { return v.div(unit, v.sqrt(x[0])) })
	})
	kernel("reciprocal", "is dst = 1/x.", func(v *isa) func(x []val) []val {
		unit := v.near(1)
		return one(func(x []val) val { return v.div(unit, x[0]) })
	})
	kernel("sigmoid", "is dst = σ(x).", func(v *isa) func(x []val) []val {
		s := v.sigmoid()
		return one(func(x []val) val { return v.div(s.unit, s.denominator(x[0])) })
	})
}
