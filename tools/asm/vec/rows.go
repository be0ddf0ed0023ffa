package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
)

func norms(v *isa) {
	kernel := func(name, signature, doc string, in []string, out string, scalars []string, f func(v *isa, x, c []val) val) {
		elementwise{
			name: name, signature: signature, doc: doc, in: in, out: []string{out}, unroll: [2]int{2, 2},
			setup: func(v *isa) func(x []val) []val {
				var c []val
				for _, s := range scalars {
					c = append(c, v.scalar(s))
				}
				return one(func(x []val) val { return f(v, x, c) })
			},
		}.emit(v)
	}
	kernel("scaleWeighted", "dst, x, w []float32, a float32", "is dst = x·a·w.",
		[]string{"x", "w"}, "dst", []string{"a"},
		func(v *isa, x, c []val) val { return v.mul(v.mul(x[0], c[0]), x[1]) })
	kernel("normAffine", "dst, x, w, b []float32, mean, rstd float32", "is dst = (x − mean)·rstd·w + b.",
		[]string{"x", "w", "b"}, "dst", []string{"mean", "rstd"},
		func(v *isa, x, c []val) val {
			y := v.mul(v.sub(x[0], c[0]), c[1])
			v.mulAdd(y, x[1], x[2])
			return y
		})
	kernel("rmsNormGrad", "dx, dy, x, w []float32, rstd, c float32", "is dx = dy·w·rstd − x·c.",
		[]string{"dy", "x", "w"}, "dx", []string{"rstd", "c"},
		func(v *isa, x, c []val) val {
			y := v.mul(v.mul(x[0], x[2]), c[0])
			v.subMul(y, x[1], c[1])
			return y
		})
	kernel("rmsNormGradW", "dw, dy, x []float32, rstd float32", "is dw += dy·x·rstd.",
		[]string{"dw", "dy", "x"}, "dw", []string{"rstd"},
		func(v *isa, x, c []val) val {
			v.addMul(x[0], v.mul(x[1], x[2]), c[0])
			return x[0]
		})
	kernel("softmaxGrad", "dst, y, dy []float32, shift, scale float32", "is dst = y·(dy − shift)·scale.",
		[]string{"y", "dy"}, "dst", []string{"shift", "scale"},
		func(v *isa, x, c []val) val { return v.mul(v.mul(x[0], v.sub(x[1], c[0])), c[1]) })
}

func rotary(v *isa) {
	kernel := func(name, doc string, up, down func(acc, a, b val)) {
		elementwise{
			name: name, signature: "y1, y2, x1, x2, cos, sin []float32", doc: doc,
			in: []string{"x1", "x2", "cos", "sin"}, out: []string{"y1", "y2"}, unroll: [2]int{1, 1},
			setup: fixed(func(v *isa, x []val) []val {
				y1, y2 := v.mul(x[0], x[2]), v.mul(x[1], x[2])
				down(y1, x[1], x[3])
				up(y2, x[0], x[3])
				return []val{y1, y2}
			}),
		}.emit(v)
	}
	kernel("rotate", "is (y1, y2) = (x1·cos − x2·sin, x2·cos + x1·sin).", v.addMul, v.subMul)
	kernel("rotateBack", "is (y1, y2) = (x1·cos + x2·sin, x2·cos − x1·sin).", v.subMul, v.addMul)
}

// adamW reads its scalars in the order of adamConstants.
func adamW(v *isa) {
	elementwise{
		name: "adamW", signature: "p, m, v, g []float32, c *float32", doc: "is one step of AdamW; c points to adamConstants.",
		in: []string{"p", "m", "v", "g"}, out: []string{"p", "m", "v"}, unroll: [2]int{1, 2},
		setup: func(v *isa) func(x []val) []val {
			at := Load(Param("c"), GP64())
			c := make([]val, 7)
			for i := range c {
				r := v.reg()
				VBROADCASTSS(Mem{Base: at, Disp: 4 * i}, r)
				c[i] = val{r}
			}
			decay, beta1c, beta2, beta2c, biasRoot, eps, negativeStep := c[0], c[1], c[2], c[3], c[4], c[5], c[6]
			return func(x []val) []val {
				p, m, s, g := x[0], x[1], x[2], x[3]
				s = v.mul(s, beta2)
				v.addMul(s, v.mul(g, g), beta2c)
				v.addMul(m, v.sub(g, m), beta1c)
				d := v.add(v.div(v.sqrt(s), biasRoot), eps)
				p = v.mul(p, decay)
				v.addMul(p, v.div(m, d), negativeStep)
				return []val{p, m, s}
			}
		},
	}.emit(v)
}
