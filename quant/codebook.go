package quant

import (
	"math"
	"slices"

	"github.com/lorafuse/lorafuse/tensor"
)

// nf4 are the numbers that the codes of NF4 stand for, in parts of the largest
// of a block: quantiles of the normal distribution, as bitsandbytes rounds them.
var nf4 = [16]float32{
	-1, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453,
	-0.28444138169288635, -0.18477343022823334, -0.09105003625154495, 0,
	0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224,
	0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1,
}

// fp4 are those of FP4: a sign, two bits of exponent and one of fraction, in
// parts of twelve.
var fp4 = [16]float32{
	0, 0.0625 / 12.0, 8 / 12.0, 12 / 12.0, 4 / 12.0, 6 / 12.0, 2 / 12.0, 3 / 12.0,
	0, -0.0625 / 12.0, -8 / 12.0, -12 / 12.0, -4 / 12.0, -6 / 12.0, -2 / 12.0, -3 / 12.0,
}

// Code gives the numbers that the codes of a 4-bit type stand for, in parts of
// the scale; zeros for other types.
func Code(d tensor.DType) [16]float32 {
	switch d {
	case tensor.NF4:
		return nf4
	case tensor.FP4:
		return fp4
	}
	return [16]float32{}
}

// nearest finds the code of a number from -1 to 1: that of the nearest number
// of a code book, of the lower one half way between two. A cell is a 128th of
// the range, so at most one bound between two codes lies in it.
type nearest struct {
	codes  [16]byte        // in the order of their numbers
	bounds [16]float32     // between code i and the next
	first  [cells + 1]byte // of each cell: the lowest code that it can be
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
		// A little below the cell, since numbers are rounded when their cell
		// is computed.
		low := float32(2*float64(c)/cells - 1 - 1e-5)
		for low > n.bounds[n.first[c]] {
			n.first[c]++
		}
	}
	return n
}

// code is the code of x, which is from -1 to 1, give or take its rounding.
func (n *nearest) code(x float32) byte {
	i := n.first[int((x+1)*(cells/2))]
	above := byte(0) // without a branch: it could not be foretold
	if x > n.bounds[i&15] {
		above = 1
	}
	return n.codes[(i+above)&15]
}
