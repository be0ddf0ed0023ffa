package gguf

import "github.com/lorafuse/lorafuse/internal/quant"

import "math"

// quantizeQ4K chooses a scale and a minimum for each of eight parts, rounds these to
// 6 bits, and then the elements to 4.
func quantizeQ4K(b []byte, x []float32) {
	var scales, mins [8]float32
	var codes [superBlock]byte
	var maxScale, maxMin float32
	for j := range 8 {
		scales[j], mins[j] = fitMin(codes[32*j:32*j+32], x[32*j:32*j+32])
		maxScale, maxMin = max(maxScale, scales[j]), max(maxMin, mins[j])
	}
	var inverseScale, inverseMin float32
	if maxScale > 0 {
		inverseScale = 63 / maxScale
	}
	if maxMin > 0 {
		inverseMin = 63 / maxMin
	}
	packed := b[4:16]
	clear(packed)
	for j := range 8 {
		s, m := byte(min(63, nearest(inverseScale*scales[j]))), byte(min(63, nearest(inverseMin*mins[j])))
		if j < 4 {
			packed[j], packed[j+4] = s, m
			continue
		}
		packed[j+4] = s&15 | m&15<<4
		packed[j-4] |= s >> 4 << 6
		packed[j] |= m >> 4 << 6
	}
	putHalf(b, maxScale/63)
	putHalf(b[2:], maxMin/63)
	for j := range 8 {
		s, m := quant.ScaleMin(packed, j)
		d, least := half(b)*float32(s), half(b[2:])*float32(m)
		if d == 0 {
			continue
		}
		for i := 32 * j; i < 32*j+32; i++ {
			codes[i] = byte(max(0, min(15, nearest((x[i]+least)/d))))
		}
	}
	for j := 0; j < superBlock; j += 64 {
		for l := range 32 {
			b[16+j/2+l] = codes[j+l] | codes[j+l+32]<<4
		}
	}
}

// fitMin returns a scale s and a minimum m, and stores 4-bit codes q. With them
// the weighted squares of s·q − m − x are small (make_qkx2_quants of ggml). It tries
// steps around the one that spans the elements, and fits s and m to the codes of each
// by least squares.
func fitMin(codes []byte, x []float32) (scale, minimum float32) {
	const top = 15
	var squares float32
	for _, v := range x {
		squares += float32(v * v)
	}
	average := float32(math.Sqrt(float64(squares / float32(len(x)))))
	var weights, trial [32]float32
	least, most := x[0], x[0]
	var sumW, sumX float32
	for i, v := range x {
		w := average + abs(v)
		weights[i], least, most = w, min(least, v), max(most, v)
		sumW += w
		sumX += float32(w * v)
	}
	least = min(least, 0)
	if most == least {
		clear(codes)
		return 0, -least
	}
	round := func(inverse float32) { // computes the codes of a step
		for i, v := range x {
			trial[i] = float32(max(0, min(top, nearest(inverse*(v-least)))))
		}
	}
	deviation := func(scale, least float32) (sum float32) {
		for i, v := range x {
			d := float32(scale*trial[i]) + least - v
			sum += float32(weights[i] * float32(d*d))
		}
		return sum
	}
	keep := func(s, m float32) {
		scale, least = s, m
		for i, q := range trial[:len(x)] {
			codes[i] = byte(q)
		}
	}
	inverse := top / (most - least)
	round(inverse)
	keep(1/inverse, least)
	best := deviation(scale, least)
	for step := range 21 {
		round((-1 + float32(float32(0.1)*float32(step)) + top) / (most - least))
		var sumL, sumL2, sumXL float32
		for i, v := range x {
			w := float32(weights[i] * trial[i])
			sumL += w
			sumL2 += float32(w * trial[i])
			sumXL += float32(w * v)
		}
		d := float32(sumW*sumL2) - float32(sumL*sumL)
		if d <= 0 {
			continue
		}
		s := (float32(sumW*sumXL) - float32(sumX*sumL)) / d
		m := (float32(sumL2*sumX) - float32(sumL*sumXL)) / d
		if m > 0 {
			m, s = 0, sumXL/sumL2
		}
		if e := deviation(s, m); e < best {
			best = e
			keep(s, m)
		}
	}
	return scale, -least
}

// tooSmall is the bound below which the magnitudes of a part count as 0.
const tooSmall = 1e-15

// quantizeQ6K chooses a scale for each of sixteen parts, rounds these to 8 bits, and
// then the elements to 6.
func quantizeQ6K(b []byte, x []float32) {
	var scales [16]float32
	var codes [superBlock]byte
	for j := range scales {
		scales[j] = fitSymmetric(codes[16*j:16*j+16], x[16*j:16*j+16])
	}
	clear(b)
	peak := largest(scales[:])
	if abs(peak) < tooSmall {
		return
	}
	inverse := -128 / peak
	putHalf(b[208:], 1/inverse)
	for j := range scales {
		s := int8(min(127, nearest(inverse*scales[j])))
		b[192+j] = byte(s)
		d := half(b[208:]) * float32(s)
		if d == 0 {
			continue
		}
		for i := 16 * j; i < 16*j+16; i++ {
			codes[i] = byte(max(-32, min(31, nearest(x[i]/d))) + 32)
		}
	}
	low, high := b[:128], b[128:192]
	for i, q := range codes {
		n, j := i/128, i%128
		low[n*64+j%64] |= q & 15 << (j / 64 * 4)
		high[n*32+j%32] |= q >> 4 << (j / 32 * 2)
	}
}

// fitSymmetric returns a scale s, and stores 6-bit codes q. With them the squares
// of s·(q − 32) − x, weighted by x², are small (make_qx_quants of ggml).
func fitSymmetric(codes []byte, x []float32) (scale float32) {
	const top = 32
	peak := largest(x)
	if abs(peak) < tooSmall {
		clear(codes)
		return 0
	}
	code := func(inverse, v float32) int { return max(-top, min(top-1, nearest(inverse*v))) }
	sums := func(inverse float32) (sumXL, sumL2 float32) {
		for _, v := range x {
			w, l := float32(v*v), float32(code(inverse, v))
			sumXL += float32(float32(w*v) * l)
			sumL2 += float32(float32(w*l) * l)
		}
		return sumXL, sumL2
	}
	keep := func(inverse float32) {
		for i, v := range x {
			codes[i] = byte(code(inverse, v) + top)
		}
	}
	inverse := -top / peak
	keep(inverse)
	sumXL, sumL2 := sums(inverse)
	if sumL2 != 0 {
		scale = sumXL / sumL2
	}
	best := scale * sumXL
	for step := -9; step <= 9; step++ {
		if step == 0 {
			continue
		}
		inverse := -(top + float32(float32(0.1)*float32(step))) / peak
		if sumXL, sumL2 := sums(inverse); sumL2 > 0 && float32(sumXL*sumXL) > float32(best*sumL2) {
			keep(inverse)
			scale = sumXL / sumL2
			best = scale * sumXL
		}
	}
	return scale
}
