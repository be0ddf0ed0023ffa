package vec

import "math"

// Sum returns the sum of x, 0 if x is empty. It uses 32 interleaved partial
// sums, so the error grows with len(x)/32 rather than len(x).
func Sum(x []float32) float32 { return active.sum(x) }

// Finite reports whether no element of x is NaN or infinite.
func Finite(x []float32) bool {
	if s := Sum(x); s-s == 0 {
		return true
	}
	for _, v := range x { // finite elements may have an infinite sum
		if v-v != 0 {
			return false
		}
	}
	return true
}

// SumSquares is the sum of x².
func SumSquares(x []float32) float32 { return active.sumSquares(x) }

// Dot returns the inner product of a and b.
func Dot(a, b []float32) float32 { return active.dot(a, b[:len(a)]) }

// Max returns the largest element of x, NaN if one of them is NaN, −Inf if x is
// empty.
func Max(x []float32) float32 { return active.max(x) }

// fold adds the partial sums in halves: i and i+16, then i and i+8, …
func fold(acc *[lanes]float32) float32 {
	for w := lanes / 2; w > 0; w /= 2 {
		for i := range w {
			acc[i] += acc[i+w]
		}
	}
	return acc[0]
}

func portableSum(x []float32) float32 {
	var acc [lanes]float32
	for ; len(x) >= lanes; x = x[lanes:] {
		for i, v := range x[:lanes] {
			acc[i] += v
		}
	}
	for i, v := range x {
		acc[i] += v
	}
	return fold(&acc)
}

func portableSumSquares(x []float32) float32 {
	var acc [lanes]float32
	for ; len(x) >= lanes; x = x[lanes:] {
		for i, v := range x[:lanes] {
			acc[i] += v * v
		}
	}
	for i, v := range x {
		acc[i] += v * v
	}
	return fold(&acc)
}

func portableSumSquaredDeviations(x []float32, mean float32) float32 {
	var acc [lanes]float32
	for i, v := range x {
		d := v - mean
		acc[i%lanes] += d * d
	}
	return fold(&acc)
}

func portableDot(a, b []float32) float32 {
	b = b[:len(a)]
	var acc [lanes]float32
	for ; len(a) >= lanes; a, b = a[lanes:], b[lanes:] {
		b := b[:lanes]
		for i, v := range a[:lanes] {
			acc[i] += v * b[i]
		}
	}
	for i, v := range a {
		acc[i] += v * b[i]
	}
	return fold(&acc)
}

// portableDot3 is Σ (a·b)·c.
func portableDot3(a, b, c []float32) float32 {
	b, c = b[:len(a)], c[:len(a)]
	var acc [lanes]float32
	for i, v := range a {
		acc[i%lanes] += v * b[i] * c[i]
	}
	return fold(&acc)
}

func portableMax(x []float32) float32 {
	m := float32(math.Inf(-1))
	for _, v := range x {
		if v > m || v != v { // if m is NaN, no v is larger
			m = v
		}
	}
	return m
}
