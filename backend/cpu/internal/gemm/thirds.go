package gemm

// thirdsRank is the longest k of a float32 B that goes into a call of thirds
// beside one of bfloat16: an adapter's.
const thirdsRank = 128

// panelKernels are the kernels by which the packed way computes a call: those for
// pairs where operands may be rounded, those of thirds where these can multiply
// what lies in memory as it is, or the usual ones.
//
// A float32 is the sum of three bfloat16, of eight bits of its significand each,
// and tiles multiply these so much faster that three products, exact in float32,
// take a third of the time of one of float32.
func (k *kernels) panelKernels(c *Call, rounds bool) *kernels {
	switch {
	case rounds:
		return k.pairs
	case k.thirds == nil:
		return k
	}
	gains := false
	for i := range c.Pairs {
		p := &c.Pairs[i]
		if p.idle() {
			continue
		}
		if p.A.Elem != F32 || p.A.Trans || p.FilterB != nil {
			return k
		}
		switch {
		case p.B.Elem == BF16:
			gains = gains || p.K > thirdsRank
		case p.B.Elem != F32 || p.K > thirdsRank:
			return k
		}
	}
	if gains {
		return k.thirds
	}
	return k
}

// parts is how many pieces the elements of B of a pair are packed in.
func (k *kernels) parts(p *Pair) int {
	if p.B.Elem == F32 {
		return max(1, len(k.part))
	}
	return 1
}
