//go:build arm64 && !purego

package vec

import "os"

// choose returns NEON, which every machine supports, or plain Go if the
// environment selects it.
func choose() *kernels {
	if os.Getenv("LORAFUSE_CPU") == portable.name {
		return &portable
	}
	return &neon
}

// available lists the implementations for this machine, best last.
func available() []*kernels { return []*kernels{&portable, &neon} }

var neon = kernels{
	name: "neon",

	add: addNEON, sub: subNEON, mul: mulNEON, div: divNEON,
	fma: fmaNEON, axpy: axpyNEON, scale: scaleNEON,

	sum: sumNEON, sumSquares: sumSquaresNEON, max: maxNEON,
	sumSquaredDeviations: sumSquaredDeviationsNEON,
	dot:                  dotNEON, dot3: dot3NEON,

	dotRows: panelKernels{dotRows1NEON, dotRows2NEON},
	addRows: panelKernels{addRows1NEON, addRows2NEON},

	expAffine: expAffineNEON,
	expSum:    expSumNEON, expTotal: expTotalNEON,

	unary: withUnary(map[Unary]func(dst, x []float32){
		Neg: negNEON, Square: squareNEON, Sqrt: sqrtNEON, Rsqrt: rsqrtNEON,
		Reciprocal: reciprocalNEON, Sigmoid: sigmoidNEON, ExpOp: expNEON,
	}),
	activate: [actCount]func(dst, x []float32){activateSiluNEON, activateGeluNEON, activateGeluTanhNEON},
	actGrad:  [actCount]func(dx, dy, x []float32){actGradSiluNEON, actGradGeluNEON, actGradGeluTanhNEON},
	glu:      [actCount]func(dst, gate, up []float32){gluSiluNEON, gluGeluNEON, gluGeluTanhNEON},
	gluGrad:  [actCount]func(dgate, dup, dy, gate, up []float32){gluGradSiluNEON, gluGradGeluNEON, gluGradGeluTanhNEON},

	scaleWeighted: scaleWeightedNEON, normAffine: normAffineNEON,
	rmsNormGrad: rmsNormGradNEON, rmsNormGradW: rmsNormGradWNEON,
	softmaxGrad: softmaxGradNEON,

	rotate: rotateNEON, rotateBack: rotateBackNEON,

	adamW:   func(p, m, v, g []float32, c adamConstants) { adamWNEON(p, m, v, g, &c.decay) },
	dropout: func(dst, x []float32, d dropBlock) { dropoutNEON(dst, x, &d.counter[0]) },
}
