package flow

import "math"

// betaShape is both parameters of the distribution that the spacing Beta is made of.
const betaShape = 0.6

// betaQuantile is the x that so much of the beta distribution with both parameters
// betaShape lies below: by halving, since the distribution rises with x.
func betaQuantile(p float64) float64 {
	if p > 0.5 { // it is symmetric
		return 1 - betaQuantile(1-p)
	}
	low, high := 0.0, 0.5
	for range 64 {
		if x := (low + high) / 2; betaBelow(x) < p {
			low = x
		} else {
			high = x
		}
	}
	return low
}

// betaBelow is how much of the distribution lies below x, for x from 0 to 1/2: the regularised
// incomplete beta function, by its continued fraction (DLMF 8.17.22) from the end of it.
func betaBelow(x float64) float64 {
	const (
		a     = betaShape
		terms = 40 // x ≤ 1/2: each halves what is missing, and more
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
