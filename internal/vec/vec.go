// Package vec holds the elementwise and row kernels of the CPU backend:
// serial functions over []float32 that the caller spreads over workers by
// rows. Each has a portable form in Go and forms for AVX2 and AVX-512 on amd64,
// NEON on arm64, written by the generators in tools/asm; the best that the
// machine runs is chosen once, when the program starts. The environment
// variable LORAFUSE_CPU (portable, avx2, avx512, neon) lowers the choice, for
// tests.
//
// Unless a function says otherwise, all slices of a call have the length of
// the first, and a longer one is cut; a shorter one is a mistake of the caller
// and panics as indexing would. A destination may be one of the sources, but
// must not overlap it shifted. Results depend on the arguments only, never on
// alignment or on the number of workers. NaN and infinities come out as the
// formula in IEEE arithmetic gives them.
package vec

// kernels is one implementation of everything that has more than one. The
// exported functions check lengths; these may assume that all slices have the
// length of the first.
type kernels struct {
	name string

	add, sub, mul, div func(dst, a, b []float32)
	fma                func(dst, a, b []float32)
	axpy               func(dst, x []float32, a float32)
	scale              func(dst, x []float32, a float32)

	sum, sumSquares, max func(x []float32) float32
	sumSquaredDeviations func(x []float32, mean float32) float32
	dot                  func(a, b []float32) float32
	dot3                 func(a, b, c []float32) float32

	dotRows, addRows panelKernels

	exp       func(dst, x []float32)
	expAffine func(dst, x []float32, scale, shift, factor float32)
	expSum    func(dst, x []float32, scale, shift float32) float32
	expTotal  func(x []float32, scale, shift float32) float32

	unary    [unaryCount]func(dst, x []float32)
	activate [actCount]func(dst, x []float32)
	actGrad  [actCount]func(dx, dy, x []float32)
	glu      [actCount]func(dst, gate, up []float32)
	gluGrad  [actCount]func(dgate, dup, dy, gate, up []float32)

	scaleWeighted func(dst, x, w []float32, a float32)
	normAffine    func(dst, x, w, b []float32, mean, rstd float32)
	rmsNormGrad   func(dx, dy, x, w []float32, rstd, c float32)
	rmsNormGradW  func(dw, dy, x []float32, rstd float32)
	softmaxGrad   func(dst, y, dy []float32, shift, scale float32)

	rotate, rotateBack func(y1, y2, x1, x2, cos, sin []float32)

	adamW   func(p, m, v, g []float32, c adamConstants) // by value: what a pointer refers to would escape
	dropout func(dst, x []float32, d dropBlock)
	keep    func(bits []byte, d dropBlock) // with masked, or nil where bits gain nothing
	masked  func(dst, x []float32, bits []byte, scale float32)
}

// active is the implementation in use. Nothing changes it after start-up but
// the tests.
var active = choose()

// ISA names the instruction set in use: "portable", "avx2", "avx512" or "neon".
func ISA() string { return active.name }

// lanes is the number of partial sums of every reduction: element i belongs
// to sum i%lanes, and the sums are folded in halves. It is the same for all
// instruction sets, so that they add in the same order.
const lanes = 32
