package vec

import "math"

// Softmax sets dst = exp(x − max x) / Σ exp(x − max x) for one row. A row of
// −Inf only gives NaN, as in torch.
func Softmax(dst, x []float32) {
	x = x[:len(dst)]
	s := active.expSum(dst, x, 1, active.max(x))
	active.scale(dst, dst, 1/s)
}

// ScoreGrad sets ds = p·(dp − delta)·scale, the gradient of attention scores,
// given delta = Σ p·dp over the whole row.
func ScoreGrad(ds, p, dp []float32, delta, scale float32) {
	active.softmaxGrad(ds, p[:len(ds)], dp[:len(ds)], delta, scale)
}

// LogSumExp returns log Σ exp(x), −Inf if x is empty or all −Inf.
func LogSumExp(x []float32) float32 {
	return float32(LogNormalizer(x))
}

// LogNormalizer returns log Σ exp(x) before rounding to float32, the number
// that [LogProb] subtracts. It is −Inf if x is empty or all −Inf.
func LogNormalizer(x []float32) float64 {
	m := active.max(x)
	if math.IsInf(float64(m), 0) {
		return float64(m)
	}
	return float64(m) + math.Log(float64(active.expTotal(x, 1, m)))
}

// LogProb returns the log-softmax of a logit x, given the [LogNormalizer] of
// its row. It equals 0 − the loss that [CrossEntropy] returns, so sampling and
// training agree bit for bit on equal logits.
func LogProb(x float32, normalizer float64) float32 {
	return 0 - loss(x, normalizer) // never −0, even for a certain token
}

// loss computes the difference before rounding: both terms may be large.
func loss(x float32, normalizer float64) float32 { return float32(normalizer - float64(x)) }

// CrossEntropy returns −log softmax(x)[target] for one row of logits, and log Σ
// exp(x) for CrossEntropyGrad.
func CrossEntropy(x []float32, target int) (ce, lse float32) {
	l := LogNormalizer(x)
	return loss(x[target], l), float32(l)
}

// CrossEntropyGrad sets dx = scale·(softmax(x) − onehot(target)), with lse from
// CrossEntropy. dx may be x.
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
