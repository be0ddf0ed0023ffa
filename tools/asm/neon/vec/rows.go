package main

func norms() {
	emit := func(name, signature, doc string, in []string, out string, scalars []string, f func(k *kernel, x, c []val) val) {
		elementwise{
			name: name, signature: signature, doc: doc, in: in, out: []string{out}, unroll: 2,
			setup: func(k *kernel) func(x []val) []val {
				var c []val
				for _, s := range scalars {
					c = append(c, k.scalar(s))
				}
				return single(func(x []val) val { return f(k, x, c) })
			},
		}.emit()
	}
	emit("scaleWeighted", "dst, x, w []float32, a float32", "is dst = x·a·w.",
		[]string{"x", "w"}, "dst", []string{"a"},
		func(k *kernel, x, c []val) val { return k.mul(k.mul(x[0], c[0]), x[1]) })
	emit("normAffine", "dst, x, w, b []float32, mean, rstd float32", "is dst = (x − mean)·rstd·w + b.",
		[]string{"x", "w", "b"}, "dst", []string{"mean", "rstd"},
		func(k *kernel, x, c []val) val {
			k.addMul(x[2], k.mul(k.sub(x[0], c[0]), c[1]), x[1])
			return x[2]
		})
	emit("rmsNormGrad", "dx, dy, x, w []float32, rstd, c float32", "is dx = dy·w·rstd − x·c.",
		[]string{"dy", "x", "w"}, "dx", []string{"rstd", "c"},
		func(k *kernel, x, c []val) val {
			y := k.mul(k.mul(x[0], x[2]), c[0])
			k.subMul(y, x[1], c[1])
			return y
		})
	emit("rmsNormGradW", "dw, dy, x []float32, rstd float32", "is dw += dy·x·rstd.",
		[]string{"dw", "dy", "x"}, "dw", []string{"rstd"},
		func(k *kernel, x, c []val) val {
			k.addMul(x[0], k.mul(x[1], x[2]), c[0])
			return x[0]
		})
	emit("softmaxGrad", "dst, y, dy []float32, shift, scale float32", "is dst = y·(dy − shift)·scale.",
		[]string{"y", "dy"}, "dst", []string{"shift", "scale"},
		func(k *kernel, x, c []val) val { return k.mul(k.mul(x[0], k.sub(x[1], c[0])), c[1]) })
}

func rotary() {
	emit := func(name, doc string, up, down func(k *kernel, acc, a, b val)) {
		elementwise{
			name: name, signature: "y1, y2, x1, x2, cos, sin []float32", doc: doc,
			in: []string{"x1", "x2", "cos", "sin"}, out: []string{"y1", "y2"}, unroll: 2,
			setup: fixed(func(k *kernel, x []val) []val {
				y1, y2 := k.mul(x[0], x[2]), k.mul(x[1], x[2])
				down(k, y1, x[1], x[3])
				up(k, y2, x[0], x[3])
				return []val{y1, y2}
			}),
		}.emit()
	}
	emit("rotate", "is (y1, y2) = (x1·cos − x2·sin, x2·cos + x1·sin).", (*kernel).addMul, (*kernel).subMul)
	emit("rotateBack", "is (y1, y2) = (x1·cos + x2·sin, x2·cos − x1·sin).", (*kernel).subMul, (*kernel).addMul)
}

// adamW reads its seven scalars in the order of adamConstants.
func adamW() {
	elementwise{
		name: "adamW", signature: "p, m, v, g []float32, c *float32", doc: "is one step of AdamW; c points to adamConstants.",
		in: []string{"p", "m", "v", "g"}, out: []string{"p", "m", "v"}, unroll: 2,
		setup: func(k *kernel) func(x []val) []val {
			at, low, high := k.param("c"), k.Vec(), k.Vec()
			k.LoadVec(low, at, 0)
			k.LoadVec(high, at, 12) // the last is read twice, since there are only seven
			decay, beta1c, beta2, beta2c := val{{low, 0}}, val{{low, 1}}, val{{low, 2}}, val{{low, 3}}
			biasRoot, eps := k.copy(val{{high, 1}}, 1), k.copy(val{{high, 2}}, 1)
			negativeStep := val{{high, 3}}
			return func(x []val) []val {
				p, m, s, g := x[0], x[1], x[2], x[3]
				s = k.mul(s, beta2)
				k.addMul(s, k.mul(g, g), beta2c)
				k.addMul(m, k.sub(g, m), beta1c)
				d := k.add(k.div(k.sqrt(s), biasRoot), eps)
				p = k.mul(p, decay)
				k.addMul(p, k.div(m, d), negativeStep)
				return []val{p, m, s}
			}
		},
	}.emit()
}
