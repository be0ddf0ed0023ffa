package gemm

const (
	// thirdsRank is the longest k of a float32 B that goes into a call of thirds
	// beside one of bfloat16: an adapter's.
	thirdsRank = 128

	// sixthsRows is how many rows a call needs for B to be worth taking apart, unless
	// it goes the way of turned.
	sixthsRows = 48
)

// panelKernels are the kernels by which the packed way computes a call: those for many
// rows, unless there are too few for B to be worth taking apart.
func (k *kernels) panelKernels(c *Call, rounds bool) *kernels {
	kern := k.manyRows(c.Pairs, rounds)
	if kern == k.sixths && c.M < sixthsRows {
		return k
	}
	return kern
}

// manyRows are the kernels by which panels of many rows are multiplied: those for
// pairs where operands may be rounded, those of thirds or sixths where these can multiply
// what lies in memory as it is, or the usual ones.
//
// A float32 is the sum of three bfloat16, of eight bits of its significand each,
// and tiles multiply these so much faster that three products, exact in float32,
// take a third of the time of one of float32. Where B is no bfloat16 it is taken
// apart too, and six of the nine products are enough for the bits of a float32.
func (k *kernels) manyRows(pairs []Pair, rounds bool) *kernels {
	switch {
	case rounds:
		return k.pairs
	case k.thirds == nil:
		return k
	}
	rounded, long := true, false // whether B is bfloat16, and not of an adapter alone
	for i := range pairs {
		p := &pairs[i]
		if p.idle() {
			continue
		}
		if p.A.Elem != F32 || p.A.Trans {
			return k
		}
		long = long || p.K > thirdsRank
		rounded = rounded && p.FilterB == nil && (p.B.Elem == BF16 || p.B.Elem == F32 && p.K <= thirdsRank)
	}
	switch {
	case long && rounded:
		return k.thirds
	case long:
		return k.sixths
	}
	return k
}

// others lists the kernels beside the usual ones that c may take, or a smaller call.
func (k *kernels) others(c *Call) (list []*kernels) {
	if k.thirds == nil {
		return nil
	}
	for i := range c.Pairs {
		switch p := &c.Pairs[i]; {
		case p.K <= thirdsRank:
		case p.B.Elem == BF16:
			return []*kernels{k.thirds, k.sixths} // the latter if another B is not
		case c.M >= k.sixths.turned.least:
			list = []*kernels{k.sixths}
		}
	}
	return list
}
