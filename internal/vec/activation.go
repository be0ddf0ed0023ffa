package vec

import "math"

// Act is an activation function of a feed-forward block.
type Act uint8

const (
	SiLU     Act = iota // x·σ(x)
	GELU                // x·Φ(x), Φ the normal distribution function ("gelu")
	GELUTanh            // x/2·(1 + tanh(√(2/π)·(x + 0.044715·x³))) ("gelu_pytorch_tanh")

	actCount
)

// Constants of GELUTanh. Since (1+tanh(u))/2 = σ(2u), both are doubled and tanh
// is not needed.
const (
	geluSlope = 2 * 0.79788456080286535588 // 2·√(2/π)
	geluCubic = 0.044715
)

// Activate sets dst = act(x). The error is below 4 units in the last place of
// x; for SiLU also of the result.
func Activate(act Act, dst, x []float32) { active.activate[act](dst, x[:len(dst)]) }

// ActivateGrad sets dx = dy·act'(x).
func ActivateGrad(act Act, dx, dy, x []float32) {
	active.actGrad[act](dx, dy[:len(dx)], x[:len(dx)])
}

// GLU sets dst = act(gate)·up: SwiGLU with SiLU, GeGLU with GELU (Shazeer,
// "GLU variants improve transformer", 2020).
func GLU(act Act, dst, gate, up []float32) {
	active.glu[act](dst, gate[:len(dst)], up[:len(dst)])
}

// GLUGrad sets dgate = dy·up·act'(gate) and dup = dy·act(gate). Each of the
// two may be one of the three sources.
func GLUGrad(act Act, dgate, dup, dy, gate, up []float32) {
	n := len(dgate)
	active.gluGrad[act](dgate, dup[:n], dy[:n], gate[:n], up[:n])
}

// value returns act(x), and slope its derivative, in float64.
func (act Act) value(x float64) float64 {
	switch act {
	case GELU:
		return x * normalCDF(x)
	case GELUTanh:
		return x * sigmoid(geluSlope*(x+geluCubic*x*x*x))
	}
	return x * sigmoid(x)
}

func (act Act) slope(x float64) float64 {
	switch act {
	case GELU:
		const norm = 0.39894228040143267794 // 1/√(2π)
		return normalCDF(x) + x*norm*expm(-x*x/2)
	case GELUTanh:
		s := sigmoid(geluSlope * (x + geluCubic*x*x*x))
		return s + x*s*(1-s)*geluSlope*(1+3*geluCubic*x*x)
	}
	s := sigmoid(x)
	return s + x*s*(1-s)
}

func sigmoid(x float64) float64 { return 1 / (1 + expm(-x)) }

func normalCDF(x float64) float64 { return math.Erfc(-x/math.Sqrt2) / 2 }

func portableActivate(act Act) func(dst, x []float32) {
	return func(dst, x []float32) {
		for i := range dst {
			dst[i] = float32(act.value(float64(x[i])))
		}
	}
}

func portableActGrad(act Act) func(dx, dy, x []float32) {
	return func(dx, dy, x []float32) {
		for i := range dx {
			dx[i] = dy[i] * float32(act.slope(float64(x[i])))
		}
	}
}

func portableGLU(act Act) func(dst, gate, up []float32) {
	return func(dst, gate, up []float32) {
		for i := range dst {
			dst[i] = float32(act.value(float64(gate[i]))) * up[i]
		}
	}
}

func portableGLUGrad(act Act) func(dgate, dup, dy, gate, up []float32) {
	return func(dgate, dup, dy, gate, up []float32) {
		for i := range dgate {
			d, g, u := dy[i], float64(gate[i]), up[i]
			dgate[i] = d * u * float32(act.slope(g))
			dup[i] = d * float32(act.value(g))
		}
	}
}
