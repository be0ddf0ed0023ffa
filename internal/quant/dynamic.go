package quant

import (
	"math"
	"slices"
)

// DynamicBlock is the number of elements per scale in bitsandbytes' 8-bit optimizers.
const DynamicBlock = 256

// Dynamic maps 256 codes to numbers from −1 to 1, in ascending order. Each block of
// [DynamicBlock] numbers has one scale: its largest magnitude (Dettmers et al. 2021, arXiv
// 2110.02861).
type Dynamic struct {
	Values [256]float32
	codes  [1 << 16]uint8 // of the numbers of a grid over −1 to 1
}

// NewDynamic returns bitsandbytes' dynamic map (create_dynamic_map). For each of seven
// powers of ten it has the midpoints of equal intervals, as many as the remaining bits
// can encode, and in addition zero and one. Without signs it has twice as many numbers
// and none below zero.
func NewDynamic(signed bool) *Dynamic {
	const exponents = 7
	values := []float32{0, 1}
	for i := range exponents {
		scale := float32(math.Pow(10, float64(i-exponents+1)))
		n := 1 << i
		if !signed {
			n *= 2
		}
		for _, mean := range middles(n) {
			values = append(values, scale*mean)
			if signed {
				values = append(values, -(scale * mean))
			}
		}
	}
	slices.Sort(values)
	return DynamicOf(values)
}

// middles returns the midpoints of n equal intervals from 0.1 to 1, rounded as
// torch.linspace does.
func middles(n int) []float32 {
	const first, last = float32(0.1), float32(1)
	step := (last - first) / float32(n)
	bounds := make([]float32, n+1)
	for i := range bounds {
		if i < (n+1)/2 {
			bounds[i] = float32(float64(first) + float64(step)*float64(i))
		} else {
			bounds[i] = float32(float64(last) - float64(step)*float64(n-i))
		}
	}
	out := make([]float32, n)
	for i := range out {
		out[i] = (bounds[i] + bounds[i+1]) / 2
	}
	return out
}

// DynamicOf returns a map of the given 256 values, in ascending order.
func DynamicOf(values []float32) *Dynamic {
	d := &Dynamic{}
	copy(d.Values[:], values)
	code := 0
	for i := range d.codes {
		x := -1 + float32(2*i)/float32(len(d.codes)-1)
		for code < 255 && 0.5*(d.Values[code]+d.Values[code+1]) < x {
			code++
		}
		d.codes[i] = uint8(code)
	}
	return d
}

// Code returns the code of x, from −1 to 1. As in bitsandbytes 0.50 on CPUs, x is first
// rounded to a grid, then to the nearest value.
func (d *Dynamic) Code(x float32) uint8 {
	x = max(-1, min(1, x))
	half := float32((x + 1) * 0.5)
	return d.codes[uint16(float32(half*float32(len(d.codes)-1))+0.5)]
}

// Decode computes the numbers of a block from their codes and scale.
func (d *Dynamic) Decode(dst []float32, codes []uint8, scale float32) {
	for i, c := range codes {
		dst[i] = d.Values[c] * scale
	}
}

// Encode computes the codes of the numbers of a block and returns their scale.
func (d *Dynamic) Encode(codes []uint8, src []float32) (scale float32) {
	for _, x := range src {
		scale = max(scale, x, -x)
	}
	if scale == 0 {
		clear(codes)
		return 0
	}
	inverse := 1 / scale
	for i, x := range src {
		codes[i] = d.Code(x * inverse)
	}
	return scale
}
