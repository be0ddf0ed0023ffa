package vec

import "math"

// Unary is an elementwise function of one argument.
type Unary uint8

// Functions for [Apply].
const (
	Neg Unary = iota
	Square
	Sqrt
	Rsqrt // 1/√x
	Reciprocal
	Sigmoid
	ExpOp // eˣ
	Log
	Tanh
	Erf
	Sin
	Cos

	unaryCount
)

// Apply sets dst = op(x). Log, Tanh, Erf, Sin and Cos call package math element
// by element, about 10 ns each; the others are vectorized.
func Apply(op Unary, dst, x []float32) { active.unary[op](dst, x[:len(dst)]) }

// scalarUnary holds the functions in float64. The result is rounded once.
var scalarUnary = [unaryCount]func(float64) float64{
	Neg:        func(x float64) float64 { return -x },
	Square:     func(x float64) float64 { return x * x },
	Sqrt:       math.Sqrt,
	Rsqrt:      func(x float64) float64 { return 1 / math.Sqrt(x) },
	Reciprocal: func(x float64) float64 { return 1 / x },
	Sigmoid:    sigmoid,
	ExpOp:      expm,
	Log:        math.Log,
	Tanh:       math.Tanh,
	Erf:        math.Erf,
	Sin:        math.Sin,
	Cos:        math.Cos,
}

func portableUnary() (t [unaryCount]func(dst, x []float32)) {
	for op, f := range scalarUnary {
		t[op] = func(dst, x []float32) {
			for i := range dst {
				dst[i] = float32(f(float64(x[i])))
			}
		}
	}
	return t
}
