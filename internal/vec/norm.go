package vec

import "math"

// RMSNorm sets dst = x·rstd·w for one row and returns
// rstd = 1/√(mean(x²)+eps) (Zhang and Sennrich, 2019; LlamaRMSNorm).
func RMSNorm(dst, x, w []float32, eps float32) (rstd float32) {
	n := len(dst)
	rstd = rmsRstd(x[:n], eps)
	active.scaleWeighted(dst, x[:n], w[:n], rstd)
	return rstd
}

// RMSNormGrad computes the gradient of RMSNorm for one row:
//
//	dx  = rstd·(dy·w − x·rstd²·mean(dy·w·x))
//	dw += dy·x·rstd
//
// dw may be nil, for a frozen weight. dx may be dy or x.
func RMSNormGrad(dx, dw, dy, x, w []float32, eps float32) {
	n := len(dx)
	dy, x, w = dy[:n], x[:n], w[:n]
	if n == 0 {
		return
	}
	rstd := rmsRstd(x, eps)
	if dw != nil {
		active.rmsNormGradW(dw[:n], dy, x, rstd)
	}
	r := float64(rstd)
	c := r * r * r * float64(active.dot3(dy, w, x)) / float64(n)
	active.rmsNormGrad(dx, dy, x, w, rstd, float32(c))
}

// LayerNorm sets dst = (x − mean)·rstd·w + b for one row, with
// rstd = 1/√(variance+eps), the variance over len(x) as in torch.
func LayerNorm(dst, x, w, b []float32, eps float32) (mean, rstd float32) {
	n := len(dst)
	x = x[:n]
	if n == 0 {
		return 0, 0
	}
	mean = active.sum(x) / float32(n)
	v := float64(active.sumSquaredDeviations(x, mean)) / float64(n)
	rstd = float32(1 / math.Sqrt(v+float64(eps)))
	active.normAffine(dst, x, w[:n], b[:n], mean, rstd)
	return mean, rstd
}

func rmsRstd(x []float32, eps float32) float32 {
	if len(x) == 0 {
		return 0
	}
	mean := float64(active.sumSquares(x)) / float64(len(x))
	return float32(1 / math.Sqrt(mean+float64(eps)))
}

// portableScaleWeighted is dst = x·a·w.
func portableScaleWeighted(dst, x, w []float32, a float32) {
	x, w = x[:len(dst)], w[:len(dst)]
	for i := range dst {
		dst[i] = x[i] * a * w[i]
	}
}

func portableNormAffine(dst, x, w, b []float32, mean, rstd float32) {
	x, w, b = x[:len(dst)], w[:len(dst)], b[:len(dst)]
	for i := range dst {
		dst[i] = (x[i]-mean)*rstd*w[i] + b[i]
	}
}

// portableRMSNormGrad is dx = dy·w·rstd − x·c.
func portableRMSNormGrad(dx, dy, x, w []float32, rstd, c float32) {
	dy, x, w = dy[:len(dx)], x[:len(dx)], w[:len(dx)]
	for i := range dx {
		dx[i] = dy[i]*w[i]*rstd - x[i]*c
	}
}

// portableRMSNormGradW is dw += dy·x·rstd.
func portableRMSNormGradW(dw, dy, x []float32, rstd float32) {
	dy, x = dy[:len(dw)], x[:len(dw)]
	for i := range dw {
		dw[i] += dy[i] * x[i] * rstd
	}
}
