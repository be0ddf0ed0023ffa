package gemm

// The calls of few columns for which tiles are fastest, by the rows and columns of C.
const (
	flatRows  = 64
	flatPairs = 12 // with fewer, blocks read A as fast as it comes
	flatFloat = 33 // and with these, in less time than A takes to be taken apart
)

// flats is the kernels by which turned computes a call of few columns, such as x·Aᵀ of an
// adapter, nil if it is none for it. Rows of A take the place of those of B, which is
// small: they are read once, and a filter is applied to them on the way.
func (k *kernels) flats(c *Call, rounds bool) *kernels {
	least := flatFloat
	if rounds {
		least = flatPairs
	}
	if k.sixths == nil || c.M < flatRows || c.N < least || c.N > colsThin {
		return nil
	}
	long := false
	for i := range c.Pairs {
		p := &c.Pairs[i]
		if p.idle() {
			continue
		}
		if p.A.Elem != F32 || p.A.Trans || p.B.Elem != F32 {
			return nil
		}
		long = long || p.K > thirdsRank
	}
	switch {
	case !long:
		return nil
	case rounds:
		return k.pairs
	}
	return k.sixths
}

// view is the call as turned computes it: that of Cᵀ where it is flat.
func (f *turned) view() *Call {
	f.v = f.c
	if f.flat {
		f.flipped = f.c.transposed(f.flipped.Pairs)
		f.v = &f.flipped
	}
	return f.v
}
