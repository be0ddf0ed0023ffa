package flow

import "math"

// betaShape is the value of both parameters of the beta distribution for use_beta_sigmas.
const betaShape = 0.6

// betaQuantile returns the x in [0, 1] at which the cumulative beta distribution reaches p.
// It bisects the bits of x, which sort like positive numbers, so that a tiny x is as exact as
// a large one. Bisecting x itself would end at 2^-65, where p is 2e-12.
func betaQuantile(p float64) float64 {
	if p > 0.5 { // the distribution is symmetric
		return 1 - betaQuantile(1-p)
	}
	low, high := uint64(0), math.Float64bits(0.5)
	for high-low > 1 {
		if mid := low + (high-low)/2; betaBelow(math.Float64frombits(mid)) < p {
			low = mid
		} else {
			high = mid
		}
	}
	return math.Float64frombits(low)
}

// betaBelow returns the share of the distribution below x, for x in [0, 1/2]. It evaluates the
// continued fraction of the regularized incomplete beta function (DLMF 8.17.22) backwards.
func betaBelow(x float64) float64 {
	const (
		a     = betaShape
		terms = 40 // x ≤ 1/2: each term at least halves the error
	)
	if x <= 0 {
		return 0
	}
	fraction := 1.0
	for i := terms; i > 0; i-- {
		m := float64(i / 2)
		d := m * (a - m) * x / ((a + 2*m - 1) * (a + 2*m))
		if i%2 == 1 {
			d = -(a + m) * (2*a + m) * x / ((a + 2*m) * (a + 2*m + 1))
		}
		fraction = 1 + d/fraction
	}
	ends := math.Gamma(2*a) / (math.Gamma(a) * math.Gamma(a)) // 1/B(a, a)
	return math.Pow(x*(1-x), a) * ends / (a * fraction)
}
