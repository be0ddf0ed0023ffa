package inspect

import (
	"encoding/binary"
	"math"

	"github.com/lorafuse/lorafuse/safetensors"
	"github.com/lorafuse/lorafuse/tensor"
)

// sweep is a worker's scratch memory for elements of 32 and 64 bits: a block
// that stays in the cache between two passes.
type sweep struct {
	f32  []float32
	f64  []float64
	keys []uint64
}

const sweepBlock = 16 << 10 // elements

// add adds whole elements to p. It returns false for other types.
func (s *sweep) add(p *part, data []byte, d safetensors.DType) bool {
	size := d.Bits() / 8
	switch d {
	case safetensors.F32, safetensors.F64, safetensors.I32, safetensors.U32, safetensors.I64, safetensors.U64, safetensors.C64:
	default:
		return false
	}
	for len(data) > 0 {
		n := min(len(data)/size, sweepBlock)
		s.block(p, data[:n*size], d)
		data = data[n*size:]
	}
	return true
}

func (s *sweep) block(p *part, data []byte, d safetensors.DType) {
	switch d {
	case safetensors.F32:
		s.f32 = resize(s.f32, len(data)/4)
		// ToFloat32, like ToFloat64, fails only for a wrong length.
		_ = tensor.ToFloat32(s.f32, data, tensor.F32)
		addFloats(p, s.f32, finest(d))
	case safetensors.I64, safetensors.U64:
		s.keys = resize(s.keys, len(data)/8)
		for i := range s.keys {
			s.keys[i] = binary.LittleEndian.Uint64(data[8*i:]) ^ signBit(d)
		}
		addKeys(p, s.keys, d)
	case safetensors.C64:
		addComplex(p, data)
	default:
		s.f64 = resize(s.f64, len(data)*8/d.Bits())
		_ = toFloat64(s.f64, data, d)
		addFloats(p, s.f64, finest(d))
	}
}

// resize returns a slice of n elements, in the memory of x if it is large enough.
func resize[T any](x []T, n int) []T {
	if cap(x) < n {
		return make([]T, n)
	}
	return x[:n]
}

// signBit returns the mask that converts an element of I64 or U64 to a key and
// back.
func signBit(d safetensors.DType) uint64 {
	if d == safetensors.I64 {
		return 1 << 63
	}
	return 0
}

// addFloats processes a block in two passes: the first computes range and mean,
// the second everything relative to them. It modifies x.
func addFloats[T float32 | float64](p *part, x []T, finest int) {
	var o part
	r := rangeOf(x)
	if r.sum-r.sum != 0 { // an element is not finite, or the sum overflows
		x = dropSpecial(&o, x)
		r = rangeOf(x)
	}
	o.zero = r.zeros
	if len(x) > 0 {
		mean := r.sum / float64(len(x))
		if r.sum-r.sum != 0 { // overflow, possibly in both directions
			mean = carefulMean(x)
		}
		o.moments = moments{int64(len(x)), mean, squares(x, mean)}
		o.floats = gridOf(float64(r.lo), float64(r.hi), finest)
		place(&o.floats, x)
	}
	p.add(&o)
}

// dropSpecial counts the elements that are not finite and moves the others to
// the front.
func dropSpecial[T float32 | float64](p *part, x []T) []T {
	finite := x[:0]
	for _, v := range x {
		switch {
		case v != v:
			p.nan++
		case v-v != 0:
			p.inf++
		default:
			finite = append(finite, v)
		}
	}
	return finite
}

// ranged is the result of the first pass.
type ranged[T float32 | float64] struct {
	lo, hi T
	sum    float64
	zeros  int64
}

// rangeOf compares each element with the bounds so far, never two elements with
// each other: these comparisons are predictable, since a bound rarely changes.
func rangeOf[T float32 | float64](x []T) ranged[T] {
	lo, hi, zeros := T(math.Inf(1)), T(math.Inf(-1)), 0
	var s0, s1, s2, s3 float64 // four independent chains of additions
	for ; len(x) >= 4; x = x[4:] {
		a, b, c, d := x[0], x[1], x[2], x[3]
		s0, s1, s2, s3 = s0+float64(a), s1+float64(b), s2+float64(c), s3+float64(d)
		if a < lo {
			lo = a
		}
		if a > hi {
			hi = a
		}
		if b < lo {
			lo = b
		}
		if b > hi {
			hi = b
		}
		if c < lo {
			lo = c
		}
		if c > hi {
			hi = c
		}
		if d < lo {
			lo = d
		}
		if d > hi {
			hi = d
		}
		if a == 0 {
			zeros++
		}
		if b == 0 {
			zeros++
		}
		if c == 0 {
			zeros++
		}
		if d == 0 {
			zeros++
		}
	}
	for _, v := range x {
		s0 += float64(v)
		if v < lo {
			lo = v
		}
		if v > hi {
			hi = v
		}
		if v == 0 {
			zeros++
		}
	}
	return ranged[T]{lo, hi, (s0 + s1) + (s2 + s3), int64(zeros)}
}

// carefulMean avoids the sum, which overflows a float64.
func carefulMean[T float32 | float64](x []T) float64 {
	mean := 0.0
	for _, v := range x {
		mean += float64(v) / float64(len(x))
	}
	return mean
}

// squares returns the sum of squared deviations from the mean.
func squares[T float32 | float64](x []T, mean float64) float64 {
	var sums [4]float64
	for ; len(x) >= 4; x = x[4:] {
		a, b, c, d := float64(x[0])-mean, float64(x[1])-mean, float64(x[2])-mean, float64(x[3])-mean
		sums[0] += a * a
		sums[1] += b * b
		sums[2] += c * c
		sums[3] += d * d
	}
	for _, v := range x {
		d := float64(v) - mean
		sums[0] += d * d
	}
	return (sums[0] + sums[1]) + (sums[2] + sums[3])
}

// place counts numbers on their grid.
func place[T float32 | float64](s *spread[int64], x []T) {
	scale, base := s.scale(), s.base
	s.n = int64(len(x))
	if s.bins == 1 {
		s.counts[0] = s.n
		return
	}
	var even, odd [32]int64 // a power of two, to avoid bounds checks; two tables, because neighbors often share a bin
	i := 0
	for ; i+2 <= len(x); i += 2 {
		even[(gridPlace(float64(x[i]), scale)-base)&31]++
		odd[(gridPlace(float64(x[i+1]), scale)-base)&31]++
	}
	if i < len(x) {
		even[(gridPlace(float64(x[i]), scale)-base)&31]++
	}
	for i := range s.counts {
		s.counts[i] = even[i] + odd[i]
	}
}

// addKeys processes keys of 64-bit integers, like addFloats; their range is
// exact.
func addKeys(p *part, keys []uint64, d safetensors.DType) {
	var o part
	if len(keys) == 0 {
		return
	}
	zero, sum := signBit(d), 0.0
	lo, hi := keys[0], keys[0]
	for _, k := range keys {
		lo, hi = min(lo, k), max(hi, k)
		sum += float64Of(k, d)
		if k == zero {
			o.zero++
		}
	}
	mean := sum / float64(len(keys))
	o.moments = moments{n: int64(len(keys)), mean: mean}
	o.wholes = keyGridOf(lo, hi)
	o.wholes.n = int64(len(keys))
	for _, k := range keys {
		diff := float64Of(k, d) - mean
		o.moments.m2 += diff * diff
		o.wholes.counts[k>>o.wholes.exp-o.wholes.base]++
	}
	p.add(&o)
}

// float64Of returns the value of a key.
func float64Of(key uint64, d safetensors.DType) float64 {
	if d == safetensors.I64 {
		return float64(int64(key ^ 1<<63))
	}
	return float64(key)
}

// addComplex processes pairs of F32. They have no order, and thus no range.
func addComplex(p *part, data []byte) {
	for ; len(data) >= 8; data = data[8:] {
		re := math.Float32frombits(binary.LittleEndian.Uint32(data))
		im := math.Float32frombits(binary.LittleEndian.Uint32(data[4:]))
		switch {
		case re != re || im != im:
			p.nan++
		case re-re != 0 || im-im != 0:
			p.inf++
		case re == 0 && im == 0:
			p.zero++
		}
	}
}
