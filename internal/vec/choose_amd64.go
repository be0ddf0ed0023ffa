//go:build amd64 && !purego

package vec

import (
	"os"

	"golang.org/x/sys/cpu"
)

// choose returns the best implementation for the machine, or a lesser one
// selected by the environment.
func choose() *kernels {
	have := available()
	for _, k := range have {
		if k.name == os.Getenv("LORAFUSE_CPU") {
			return k
		}
	}
	return have[len(have)-1]
}

// available lists the implementations for this machine, best last.
func available() []*kernels {
	have := []*kernels{&portable}
	x := cpu.X86
	if x.HasAVX2 && x.HasFMA && x.HasF16C {
		have = append(have, &avx2)
		if x.HasAVX512F && x.HasAVX512BW && x.HasAVX512DQ && x.HasAVX512VL && x.HasBMI2 {
			have = append(have, &avx512)
		}
	}
	return have
}

var avx2 = kernels{
	name: "avx2",

	add: addAVX2, sub: subAVX2, mul: mulAVX2, div: divAVX2,
	fma: fmaAVX2, axpy: axpyAVX2, scale: scaleAVX2,

	sum: sumAVX2, sumSquares: sumSquaresAVX2, max: maxAVX2,
	sumSquaredDeviations: sumSquaredDeviationsAVX2,
	dot:                  dotAVX2, dot3: dot3AVX2,

	dotRows: panelKernels{dotRows1AVX2, dotRows2AVX2},
	addRows: panelKernels{addRows1AVX2, addRows2AVX2},

	expAffine: expAffineAVX2,
	expSum:    expSumAVX2, expTotal: expTotalAVX2,

	unary: withUnary(map[Unary]func(dst, x []float32){
		Neg: negAVX2, Square: squareAVX2, Sqrt: sqrtAVX2, Rsqrt: rsqrtAVX2,
		Reciprocal: reciprocalAVX2, Sigmoid: sigmoidAVX2, ExpOp: expAVX2,
	}),
	activate: [actCount]func(dst, x []float32){activateSiluAVX2, activateGeluAVX2, activateGeluTanhAVX2},
	actGrad:  [actCount]func(dx, dy, x []float32){actGradSiluAVX2, actGradGeluAVX2, actGradGeluTanhAVX2},
	glu:      [actCount]func(dst, gate, up []float32){gluSiluAVX2, gluGeluAVX2, gluGeluTanhAVX2},
	gluGrad:  [actCount]func(dgate, dup, dy, gate, up []float32){gluGradSiluAVX2, gluGradGeluAVX2, gluGradGeluTanhAVX2},

	scaleWeighted: scaleWeightedAVX2, normAffine: normAffineAVX2,
	rmsNormGrad: rmsNormGradAVX2, rmsNormGradW: rmsNormGradWAVX2,
	softmaxGrad: softmaxGradAVX2,

	rotate: rotateAVX2, rotateBack: rotateBackAVX2,

	adamW:   func(p, m, v, g []float32, c adamConstants) { adamWAVX2(p, m, v, g, &c.decay) },
	dropout: func(dst, x []float32, d dropBlock) { dropoutAVX2(dst, x, &d.counter[0]) },
	keep:    func(bits []byte, d dropBlock) { keepAVX2(bits, &d.counter[0]) },
	masked:  maskedAVX2,
}

var avx512 = kernels{
	name: "avx512",

	add: addAVX512, sub: subAVX512, mul: mulAVX512, div: divAVX512,
	fma: fmaAVX512, axpy: axpyAVX512, scale: scaleAVX512,

	sum: sumAVX512, sumSquares: sumSquaresAVX512, max: maxAVX512,
	sumSquaredDeviations: sumSquaredDeviationsAVX512,
	dot:                  dotAVX512, dot3: dot3AVX512,

	dotRows: panelKernels{dotRows1AVX512, dotRows2AVX512, dotRows4AVX512},
	addRows: panelKernels{addRows1AVX512, addRows2AVX512, addRows4AVX512},

	expAffine: expAffineAVX512,
	expSum:    expSumAVX512, expTotal: expTotalAVX512,

	unary: withUnary(map[Unary]func(dst, x []float32){
		Neg: negAVX512, Square: squareAVX512, Sqrt: sqrtAVX512, Rsqrt: rsqrtAVX512,
		Reciprocal: reciprocalAVX512, Sigmoid: sigmoidAVX512, ExpOp: expAVX512,
	}),
	activate: [actCount]func(dst, x []float32){activateSiluAVX512, activateGeluAVX512, activateGeluTanhAVX512},
	actGrad:  [actCount]func(dx, dy, x []float32){actGradSiluAVX512, actGradGeluAVX512, actGradGeluTanhAVX512},
	glu:      [actCount]func(dst, gate, up []float32){gluSiluAVX512, gluGeluAVX512, gluGeluTanhAVX512},
	gluGrad:  [actCount]func(dgate, dup, dy, gate, up []float32){gluGradSiluAVX512, gluGradGeluAVX512, gluGradGeluTanhAVX512},

	scaleWeighted: scaleWeightedAVX512, normAffine: normAffineAVX512,
	rmsNormGrad: rmsNormGradAVX512, rmsNormGradW: rmsNormGradWAVX512,
	softmaxGrad: softmaxGradAVX512,

	rotate: rotateAVX512, rotateBack: rotateBackAVX512,

	adamW:   func(p, m, v, g []float32, c adamConstants) { adamWAVX512(p, m, v, g, &c.decay) },
	dropout: func(dst, x []float32, d dropBlock) { dropoutAVX512(dst, x, &d.counter[0]) },
	keep:    func(bits []byte, d dropBlock) { keepAVX512(bits, &d.counter[0]) },
	masked:  maskedAVX512,
}
