package main

import "math"

// sigmoid computes σ(x) = 1/(1 + e⁻ˣ).
type sigmoid struct {
	*exponential
	unit, sign, abs val
}

func (v *isa) sigmoid() *sigmoid {
	return &sigmoid{v.exponential(), v.near(1), v.word(1 << 31), v.word(1<<31 - 1)}
}

// denominator computes 1 + e⁻ˣ.
func (s *sigmoid) denominator(x val) val {
	return s.add(s.exponential.of(s.xor(x, s.sign)), s.unit)
}

// both computes σ(x) and σ(−x) = 1 − σ(x), each to full relative accuracy: the exponential of −|x| cannot overflow.
func (s *sigmoid) both(x val) (p, q val) {
	e := s.exponential.of(s.xor(s.and(x, s.abs), s.sign))
	large := s.div(s.unit, s.add(e, s.unit))
	small := s.mul(large, e)
	return s.bySign(x, small, large), s.bySign(x, large, small)
}

// activation computes a function and its derivative.
type activation interface {
	value(x val) val          // act(x); x is preserved
	both(x val) (y, dydx val) // act(x) and act'(x); x is preserved
}

type silu struct{ *sigmoid }

func (a silu) value(x val) val { return a.div(x, a.denominator(x)) }

func (a silu) both(x val) (y, dydx val) {
	p, q := a.sigmoid.both(x)
	y = a.mul(x, p)
	dydx = a.copy(p, len(x)) // σ + x·σ·(1−σ)
	a.addMul(dydx, y, q)
	return y, dydx
}

// geluTanh computes x·σ(2u) with 2u = slope·(x + cubic·x³).
type geluTanh struct {
	*sigmoid
	cubic, slope, slope3 val
}

func newGELUTanh(v *isa) geluTanh {
	const slope, cubic = 2 * 0.79788456080286535588, 0.044715
	return geluTanh{v.sigmoid(), v.constant(cubic * slope), v.constant(slope), v.constant(3 * cubic * slope)}
}

// argument computes 2u.
func (a geluTanh) argument(x val) val {
	u := a.mul(x, x)
	u = a.mul(u, a.cubic)
	u = a.add(u, a.slope)
	return a.mul(u, x)
}

func (a geluTanh) value(x val) val { return a.div(x, a.denominator(a.argument(x))) }

func (a geluTanh) both(x val) (y, dydx val) {
	p, q := a.sigmoid.both(a.argument(x))
	y = a.mul(x, p)
	du := a.mul(a.mul(x, x), a.slope3)
	du = a.add(du, a.slope)
	dydx = a.copy(p, len(x)) // σ + x·σ·(1−σ)·du
	a.addMul(dydx, a.mul(y, q), du)
	return y, dydx
}

// gelu computes x·Φ(x). With t = |x| and k = 1/(1+pt), Φ(−t) = exp(−t²/2)·k·h(k), the form of Hastings (1955;
// Abramowitz and Stegun 7.1.26) with a fitted h of degree 8 and a relative error of 3e-8 for all t. The lower tail
// keeps its digits, which 1 + erf would lose.
type gelu struct {
	*exponential
	p, unit, half, abs, norm val
	h                        []val // highest degree first
}

var geluH = []float64{-0.0275825044, 0.142805282, -0.269682979, 0.188745747, -0.0379092931, 0.112107902, 0.116869487, 0.137525828, 0.137120543}

func newGELU(v *isa) gelu {
	g := gelu{
		exponential: v.exponential(),
		p:           v.constant(0.34375),
		unit:        v.near(1),
		half:        v.constant(-0.5),
		abs:         v.word(1<<31 - 1),
		norm:        v.constant(1 / math.Sqrt(2*math.Pi)),
	}
	g.h = append(g.h, v.constant(geluH[0]))
	for _, c := range geluH[1:] {
		g.h = append(g.h, v.far(c))
	}
	return g
}

// cdf computes Φ(x) and exp(−x²/2).
func (g gelu) cdf(x val) (phi, e val) {
	e = g.exponential.of(g.mul(g.mul(x, x), g.half))
	k := g.mul(g.and(x, g.abs), g.p)
	k = g.div(g.unit, g.add(k, g.unit))
	h := g.copy(g.h[0], len(x))
	for _, c := range g.h[1:] {
		g.mulAdd(h, k, c)
	}
	h = g.mul(g.mul(h, k), e)
	return g.bySign(x, h, g.sub(g.unit, h)), e
}

func (g gelu) value(x val) val {
	phi, _ := g.cdf(x)
	return g.mul(x, phi)
}

func (g gelu) both(x val) (y, dydx val) {
	phi, e := g.cdf(x)
	y = g.mul(x, phi)
	g.addMul(phi, g.mul(x, e), g.norm) // Φ + x·φ
	return y, phi
}

func activations(v *isa) {
	for _, a := range []struct {
		name string
		make func(v *isa) activation
	}{
		{"Silu", func(v *isa) activation { return silu{v.sigmoid()} }},
		{"Gelu", func(v *isa) activation { return newGELU(v) }},
		{"GeluTanh", func(v *isa) activation { return newGELUTanh(v) }},
	} {
		kernel := func(name, signature, doc string, unroll int, in, out []string, f func(v *isa, act activation, x []val) []val) {
			elementwise{
				name: name + a.name, signature: signature, doc: doc, in: in, out: out, unroll: [2]int{1, unroll},
				setup: func(v *isa) func(x []val) []val {
					act := a.make(v)
					return func(x []val) []val { return f(v, act, x) }
				},
			}.emit(v)
		}
		kernel("activate", "dst, x []float32", "is dst = act(x).", 2, []string{"x"}, []string{"dst"},
			func(v *isa, act activation, x []val) []val { return []val{act.value(x[0])} })
		kernel("actGrad", "dx, dy, x []float32", "is dx = dy·act'(x).", 1, []string{"dy", "x"}, []string{"dx"},
			func(v *isa, act activation, x []val) []val {
				_, slope := act.both(x[1])
				return []val{v.mul(slope, x[0])}
			})
		kernel("glu", "dst, gate, up []float32", "is dst = act(gate)·up.", 2, []string{"gate", "up"}, []string{"dst"},
			func(v *isa, act activation, x []val) []val { return []val{v.mul(act.value(x[0]), x[1])} })
		kernel("gluGrad", "dgate, dup, dy, gate, up []float32", "is dgate = dy·up·act'(gate), dup = dy·act(gate).", 1,
			[]string{"dy", "gate", "up"}, []string{"dgate", "dup"},
			func(v *isa, act activation, x []val) []val {
				y, slope := act.both(x[1])
				return []val{v.mul(v.mul(x[0], x[2]), slope), v.mul(x[0], y)}
			})
	}
}
