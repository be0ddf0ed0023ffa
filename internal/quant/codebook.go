package quant

import (
	"math"
	"slices"

	"github.com/lorafuse/lorafuse/tensor"
)

// nf4 is the code book of NF4, relative to the largest magnitude of a block:
// quantiles of the normal distribution, as rounded by bitsandbytes.
var nf4 = [16]float32{
	-1, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453,
	-0.28444138169288635, -0.18477343022823334, -0.09105003625154495, 0,
	0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224,
	0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1,
}

// fp4 is the code book of FP4, in twelfths: a sign, two exponent bits and one
// mantissa bit.
var fp4 = [16]float32{
	0, 0.0625 / 12.0, 8 / 12.0, 12 / 12.0, 4 / 12.0, 6 / 12.0, 2 / 12.0, 3 / 12.0,
	0, -0.0625 / 12.0, -8 / 12.0, -12 / 12.0, -4 / 12.0, -6 / 12.0, -2 / 12.0, -3 / 12.0,
}

// Code returns the numbers that the codes of a 4-bit type represent, relative
// to the scale; zeros for other types.
func Code(d tensor.DType) [16]float32 {
	switch d {
	case tensor.NF4:
		return nf4
	case tensor.FP4:
		return fp4
	}
	return [16]float32{}
}

// nearest finds the code whose number is nearest to a number from -1 to 1; of
// two equally near ones it chooses the lower. A cell is a 128th of the range,
// so it contains at most one boundary between two codes.
type nearest struct {
	codes  [16]byte        // ordered by their numbers
	bounds [16]float32     // boundary between code i and the next
	first  [cells + 1]byte // lowest possible code in each cell
}

const cells = 256

var nearests = map[tensor.DType]*nearest{tensor.NF4: newNearest(nf4), tensor.FP4: newNearest(fp4)}

func newNearest(book [16]float32) *nearest {
	n := &nearest{}
	order := make([]int, 0, 16)
	for i := range book {
		if !slices.ContainsFunc(order, func(j int) bool { return book[j] == book[i] }) {
			order = append(order, i)
		}
	}
	slices.SortFunc(order, func(a, b int) int { return int(math.Copysign(1, float64(book[a]-book[b]))) })
	for i, code := range order {
		n.codes[i], n.bounds[i] = byte(code), float32(math.Inf(1))
		if i+1 < len(order) {
			n.bounds[i] = (book[code] + book[order[i+1]]) / 2
		}
	}
	for c := range n.first {
		// Start slightly below the cell, since the computation of the cell
		// rounds.
		low := float32(2*float64(c)/cells - 1 - 1e-5)
		for low > n.bounds[n.first[c]] {
			n.first[c]++
		}
	}
	return n
}

// code returns the code of x, which must be from -1 to 1 up to rounding.
func (n *nearest) code(x float32) byte {
	i := n.first[int((x+1)*(cells/2))]
	above := byte(0) // branchless, because the branch would be unpredictable
	if x > n.bounds[i&15] {
		above = 1
	}
	return n.codes[(i+above)&15]
}
