package vec

// portable is the implementation in plain Go. It defines every kernel, and runs
// on machines without assembly.
var portable = kernels{
	name: "portable",

	add: portableAdd, sub: portableSub, mul: portableMul, div: portableDiv,
	fma: portableFMA, axpy: portableAxpy, scale: portableScale,

	sum: portableSum, sumSquares: portableSumSquares, max: portableMax,
	sumSquaredDeviations: portableSumSquaredDeviations,
	dot:                  portableDot, dot3: portableDot3,

	dotRows: panelKernels{portableDotRows}, addRows: panelKernels{portableAddRows},

	expAffine: portableExpAffine,
	expSum:    portableExpSum, expTotal: portableExpTotal,

	unary:    portableUnary(),
	activate: perAct(portableActivate),
	actGrad:  perAct(portableActGrad),
	glu:      perAct(portableGLU),
	gluGrad:  perAct(portableGLUGrad),

	scaleWeighted: portableScaleWeighted, normAffine: portableNormAffine,
	rmsNormGrad: portableRMSNormGrad, rmsNormGradW: portableRMSNormGradW,
	softmaxGrad: portableSoftmaxGrad,

	rotate: portableRotate, rotateBack: portableRotateBack,

	adamW: portableAdamW, dropout: portableDropout,
}

func perAct[F any](f func(Act) F) (t [actCount]F) {
	for a := range actCount {
		t[a] = f(a)
	}
	return t
}
