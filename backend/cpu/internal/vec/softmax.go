package vec

import "math"

// Softmax sets dst = exp(x − max x) / Σ exp(x − max x) for one row. A row of
// which every element is −Inf gives NaN, as in torch.
func Softmax(dst, x []float32) {
	x = x[:len(dst)]
	s := active.expSum(dst, x, 1, active.max(x))
	active.scale(dst, dst, 1/s)
}

// SoftmaxGrad sets dx = y·(dy − Σ y·dy), the gradient of y = softmax(x).
func SoftmaxGrad(dx, y, dy []float32) {
	y, dy = y[:len(dx)], dy[:len(dx)]
	active.softmaxGrad(dx, y, dy, active.dot(y, dy), 1)
}

// ScoreGrad sets ds = p·(dp − delta)·scale: the gradient of attention scores,
// where delta = Σ p·dp over the whole row is known beforehand.
func ScoreGrad(ds, p, dp []float32, delta, scale float32) {
	active.softmaxGrad(ds, p[:len(ds)], dp[:len(ds)], delta, scale)
}

// LogSumExp is log Σ exp(x), −Inf if x is empty or all −Inf.
func LogSumExp(x []float32) float32 {
	return float32(logSumExp(x))
}

func logSumExp(x []float32) float64 {
	m := active.max(x)
	if math.IsInf(float64(m), 0) {
		return float64(m)
	}
	return float64(m) + math.Log(float64(active.expTotal(x, 1, m)))
}

// CrossEntropy is −log softmax(x)[target] for one row of logits. It returns
// log Σ exp(x) too, which CrossEntropyGrad wants.
func CrossEntropy(x []float32, target int) (loss, lse float32) {
	// The difference is taken before rounding: both terms may be large.
	l := logSumExp(x)
	return float32(l - float64(x[target])), float32(l)
}

// CrossEntropyGrad sets dx = scale·(softmax(x) − onehot(target)), with lse as
// CrossEntropy gave it. dx may be x.
func CrossEntropyGrad(dx, x []float32, target int, lse, scale float32) {
	active.expAffine(dx, x[:len(dx)], 1, lse, scale)
	dx[target] -= scale
}

func portableSoftmaxGrad(dst, y, dy []float32, shift, scale float32) {
	y, dy = y[:len(dst)], dy[:len(dst)]
	for i := range dst {
		dst[i] = y[i] * (dy[i] - shift) * scale
	}
}
