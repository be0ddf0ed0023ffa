package main

func arithmetic() {
	binary := func(name, doc string, f func(k *kernel, a, b val) val) {
		elementwise{
			name: name, signature: "dst, a, b []float32", doc: doc,
			in: []string{"a", "b"}, out: []string{"dst"}, unroll: 4,
			setup: fixed(func(k *kernel, x []val) []val { return []val{f(k, x[0], x[1])} }),
		}.emit()
	}
	binary("add", "is dst = a + b.", (*kernel).add)
	binary("sub", "is dst = a − b.", (*kernel).sub)
	binary("mul", "is dst = a·b.", (*kernel).mul)
	binary("div", "is dst = a/b.", (*kernel).div)
	elementwise{
		name: "fma", signature: "dst, a, b []float32", doc: "is dst += a·b.",
		in: []string{"dst", "a", "b"}, out: []string{"dst"}, unroll: 4,
		setup: fixed(func(k *kernel, x []val) []val {
			k.addMul(x[0], x[1], x[2])
			return x[:1]
		}),
	}.emit()
	elementwise{
		name: "axpy", signature: "dst, x []float32, a float32", doc: "is dst += a·x.",
		in: []string{"dst", "x"}, out: []string{"dst"}, unroll: 4,
		setup: func(k *kernel) func(x []val) []val {
			a := k.scalar("a")
			return func(x []val) []val {
				k.addMul(x[0], x[1], a)
				return x[:1]
			}
		},
	}.emit()
	elementwise{
		name: "scale", signature: "dst, x []float32, a float32", doc: "is dst = a·x.",
		in: []string{"x"}, out: []string{"dst"}, unroll: 4,
		setup: func(k *kernel) func(x []val) []val {
			a := k.scalar("a")
			return single(func(x []val) val { return k.mul(x[0], a) })
		},
	}.emit()
}

func unary() {
	emit := func(name, doc string, setup func(k *kernel) func(x []val) []val) {
		elementwise{
			name: name, signature: "dst, x []float32", doc: doc,
			in: []string{"x"}, out: []string{"dst"}, unroll: 2, setup: setup,
		}.emit()
	}
	emit("neg", "is dst = −x.", func(k *kernel) func(x []val) []val {
		sign := k.near(1 << 31)
		return single(func(x []val) val { return k.xor(x[0], sign) })
	})
	emit("square", "is dst = x².", fixed(func(k *kernel, x []val) []val { return []val{k.mul(x[0], x[0])} }))
	emit("sqrt", "is dst = √x.", fixed(func(k *kernel, x []val) []val { return []val{k.sqrt(x[0])} }))
	emit("rsqrt", "is dst = 1/√x.", func(k *kernel) func(x []val) []val {
		unit := k.near(bits(1))
		return single(func(x []val) val { return k.div(unit, k.sqrt(x[0])) })
	})
	emit("reciprocal", "is dst = 1/x.", func(k *kernel) func(x []val) []val {
		unit := k.near(bits(1))
		return single(func(x []val) val { return k.div(unit, x[0]) })
	})
	emit("sigmoid", "is dst = σ(x).", func(k *kernel) func(x []val) []val {
		s := k.sigmoid()
		return single(func(x []val) val { return k.div(s.unit, s.denominator(x[0])) })
	})
}
