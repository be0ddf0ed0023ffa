package gemm

// Choices within a way: the kernels that multiply panels, and the kernel for each pair of a call.

// family is a set of kernels that multiply panels.
type family uint8

const (
	inFloats       family = iota
	inPairs               // rounded to bfloat16, two elements along k in a word
	inPiecesOfA           // A is taken apart, B is bfloat16
	inPiecesOfBoth        // both are
)

func (f family) String() string {
	return [...]string{"floats", "pairs", "piecesOfA", "piecesOfBoth"}[f]
}

// panels returns the family that multiplies panels of this call: the family for many rows, or floats if there are too
// few rows to make splitting B worthwhile. In invariant calls it does not depend on the number of rows.
func (s *shape) panels() family {
	f := s.manyRows()
	if f == inPiecesOfBoth && s.M < piecesRows && !s.invariant {
		return inFloats
	}
	return f
}

// manyRows returns the family that multiplies panels of many rows: pairs if operands may be rounded, pieces if tiles
// can multiply the operands without rounding, or floats.
//
// A float32 is the sum of three bfloat16, with eight bits of its significand each, and tiles multiply these so much
// faster that three products, exact in float32, take a third of the time of one float32 product. If B is not bfloat16
// it is split too, and six of the nine products suffice for the bits of a float32.
func (s *shape) manyRows() family {
	switch {
	case s.rounds:
		return inPairs
	case !s.limits.tiles || !s.plainA || s.longest <= rankMost:
		return inFloats
	}
	for i := range s.Pairs {
		// A float32 B of an adapter is split too if it accompanies a bfloat16 one.
		if p := &s.Pairs[i]; !p.idle() && (p.FilterB != nil || p.B.Elem != BF16 && (p.B.Elem != F32 || p.K > rankMost)) {
			return inPiecesOfBoth
		}
	}
	return inPiecesOfA
}

// tilesFamily returns the family that tilesTransposed uses, for few columns or not.
func (s *shape) tilesFamily(fewColumns bool) family {
	if f := s.manyRows(); !fewColumns || f == inPairs {
		return f
	}
	return inPiecesOfBoth
}

// tilesRows returns the range of rows of A in calls of tilesTransposed.
func tilesRows(f family) (least, most int) {
	if f == inPiecesOfBoth {
		return tilesBothLeast, tilesBothMost
	}
	return tilesLeast, tilesMost
}

// families lists the families that a call may take, or any call that differs from it only in
// being smaller.
func (s *shape) families() []family {
	if s.rounds {
		return []family{inPairs}
	}
	list := []family{inFloats}
	if !s.limits.tiles {
		return list
	}
	for i := range s.Pairs {
		switch p := &s.Pairs[i]; {
		case p.K <= rankMost:
		case p.B.Elem == BF16:
			return []family{inFloats, inPiecesOfA, inPiecesOfBoth} // the latter if another B is not
		case s.M >= tilesBothLeast || s.invariant:
			list = []family{inFloats, inPiecesOfBoth}
		}
	}
	return list
}

// inPieces reports whether B is taken apart where A is.
func (p *Pair) inPieces() bool { return p.B.Elem != BF16 || p.FilterB != nil }

// thin reports whether panels have a few rows of a transposed A, as dhᵀ of an adapter: see
// thinCols.
func (s *shape) thin() bool { return s.limits.tiles && s.panels() == inPairs && s.isLongK() }

// by is the kernel that multiplies a pair.
type by uint8

const (
	bySkipped by = iota // it adds nothing
	byFloats
	byPairs
	byShort         // one row and a short k
	byShortRows     // several: B is transposed on its way, and then direct
	byDots          // B in place, k contiguous
	byDotSplit      // the same, even and odd elements of bfloat16 apart
	byDotBlocks     // the same, quantised
	byDotBlocksLong // the same, of one long row
	byDotWidened    // the same, of rows that are no whole blocks
	byDirect        // B in place, columns contiguous
	byDirectWidened // the same, quantised
	byOuter         // outer products of rows of float32
	byOuterPairs    // the same, rounded
)

func (b by) String() string {
	return [...]string{"skipped", "floats", "pairs", "short", "shortRows", "dots", "dotSplit", "dotBlocks", "dotBlocksLong", "dotWidened",
		"direct", "directWidened", "outer floats", "outer pairs"}[b]
}

// shortMost is the longest k for which the sums across registers are what takes
// the time.
const shortMost = 128

// blocksLongK is the longest row of A that leaves room in the nearest cache for the rows of
// quantised blocks that dotBlocks takes at once. With a longer one longRows are multiplied at
// a time.
const blocksLongK = 4096

// isShort reports whether a pair is of one row with rows that are short, as h·Bᵀ of an adapter.
func (s *shape) isShort(p *Pair) bool {
	return s.limits.short && s.single() && p.B.Trans && p.B.Elem == F32 && p.K <= shortMost && !p.idle()
}

// inFewRows returns the kernel of a pair in fewRows.
func (s *shape) inFewRows(p *Pair) by {
	switch quantized := p.B.Elem.Quantized(); {
	case p.idle():
		return bySkipped
	case quantized && !p.B.Trans:
		return byDirectWidened
	case quantized && !p.B.inBlocks(p.K):
		return byDotWidened
	case quantized && s.M == 1 && p.K > blocksLongK && s.limits.longBlocks:
		return byDotBlocksLong
	case quantized:
		return byDotBlocks
	case s.limits.dotSplit && p.B.Elem == BF16 && p.B.Trans:
		return byDotSplit
	case s.isShort(p):
		return byShort
	case p.B.Trans:
		return byDots
	}
	return byDirect
}

// inRowsInPlace returns the kernel of a pair in rowsInPlace. byShortRows depends on the pair only, except for a
// single row, which is bound by memory and not rounded.
func (s *shape) inRowsInPlace(p *Pair) by {
	switch {
	case p.idle():
		return bySkipped
	case s.isShort(p):
		return byShort
	case !s.single() && p.K <= s.limits.inPlaceShort && p.A.Elem == F32 && !p.A.Trans && !p.B.Elem.Quantized():
		return byShortRows
	case !s.single() && p.B.Elem == BF16 && s.rounds && s.limits.inPlacePairs:
		return byPairs
	}
	return byFloats
}

// inLongK returns the kernel of a pair in longK.
func (s *shape) inLongK(p *Pair) by {
	switch {
	case p.idle():
		return bySkipped
	case !s.limits.outer || !s.direct(&p.B):
		return byDirect
	case s.outerRounds():
		return byOuterPairs
	}
	return byOuter
}

// outerRounds reports whether outer products are of rounded operands.
func (s *shape) outerRounds() bool { return s.rounds && s.limits.outerPairs }

// spreads reports whether fewColumns puts columns along the lanes of registers.
func (s *shape) spreads() bool {
	l := s.limits
	return !(s.rounds && l.stripsPairs) && l.spreadLanes > 0 && s.N*4 >= l.spreadWidth(s.N)*l.spreadQuarters
}
