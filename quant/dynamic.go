package quant

import (
	"math"
	"slices"
)

// DynamicBlock is how many numbers share one scale in bitsandbytes' 8-bit optimizers.
const DynamicBlock = 256

// Dynamic is a map of 256 codes to numbers of −1 to 1, in ascending order, with one scale
// for each [DynamicBlock] numbers: the largest of their sizes (Dettmers et al. 2021, arXiv
// 2110.02861).
type Dynamic struct {
	Values [256]float32
	codes  [1 << 16]uint8 // of the numbers of a grid over −1 to 1
}

// NewDynamic is bitsandbytes' dynamic map (create_dynamic_map): for each of seven powers
// of ten as many numbers as a fraction of the remaining bits has, in the middles of even
// steps; zero and one. Without signs it has twice as many and none below zero.
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

// middles are those of n even steps from 0.1 to 1, rounded as torch.linspace does.
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

// DynamicOf is a map of the given 256 values, which ascend.
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

// Code is the code of x, of −1 to 1: that of the value nearest to the point of the grid
// which is nearest to x, as bitsandbytes 0.50 has it on CPUs.
func (d *Dynamic) Code(x float32) uint8 {
	x = max(-1, min(1, x))
	half := float32((x + 1) * 0.5)
	return d.codes[uint16(float32(half*float32(len(d.codes)-1))+0.5)]
}

// Decode gives the numbers of a block.
func (d *Dynamic) Decode(dst []float32, codes []uint8, scale float32) {
	for i, c := range codes {
		dst[i] = d.Values[c] * scale
	}
}

// Encode gives the codes of the numbers of a block, and their scale.
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
