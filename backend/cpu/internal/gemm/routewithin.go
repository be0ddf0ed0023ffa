package gemm

// What a way chooses for itself: the kernels by which it multiplies panels, and for each
// pair of a call the kernel that multiplies it.

// family is the kernels by which panels are multiplied.
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

// panels is the family by which panels of this call are multiplied: that of many rows, or
// floats where there are too few rows for B to be worth taking apart. In invariant calls the
// number of rows decides nothing.
func (s *shape) panels() family {
	f := s.manyRows()
	if f == inPiecesOfBoth && s.M < piecesRows && !s.invariant {
		return inFloats
	}
	return f
}

// manyRows is the family by which panels of many rows are multiplied: pairs where operands
// may be rounded, pieces where tiles can multiply what lies in memory as it is, or floats.
//
// A float32 is the sum of three bfloat16, of eight bits of its significand each,
// and tiles multiply these so much faster that three products, exact in float32,
// take a third of the time of one of float32. Where B is no bfloat16 it is taken
// apart too, and six of the nine products are enough for the bits of a float32.
func (s *shape) manyRows() family {
	switch {
	case s.rounds:
		return inPairs
	case !s.limits.tiles || !s.plainA || s.longest <= rankMost:
		return inFloats
	}
	for i := range s.Pairs {
		// A float32 B of an adapter is taken apart beside a bfloat16 one.
		if p := &s.Pairs[i]; !p.idle() && (p.FilterB != nil || p.B.Elem != BF16 && (p.B.Elem != F32 || p.K > rankMost)) {
			return inPiecesOfBoth
		}
	}
	return inPiecesOfA
}

// tilesFamily is the family by which tilesTransposed computes a call, of few columns or not.
func (s *shape) tilesFamily(fewColumns bool) family {
	if f := s.manyRows(); !fewColumns || f == inPairs {
		return f
	}
	return inPiecesOfBoth
}

// tilesRows is how many rows of A a call of tilesTransposed has.
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
	byDots          // B as it lies, its k side by side
	byDotSplit      // the same, even and odd elements of bfloat16 apart
	byDotBlocks     // the same, quantised
	byDotBlocksLong // the same, of one long row
	byDotWidened    // the same, of rows that are no whole blocks
	byDirect        // B as it lies, its columns side by side
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

// inFewRows is the kernel of a pair in fewRows.
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

// inRowsInPlace is the kernel of a pair in rowsInPlace. What byShortRows adds depends on the
// pair alone, but for a single row, which waits for memory and is not rounded.
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

// inLongK is the kernel of a pair in longK.
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

// spreads reports whether the columns of fewColumns lie along the lanes of registers.
func (s *shape) spreads() bool {
	l := s.limits
	return !(s.rounds && l.stripsPairs) && l.spreadLanes > 0 && s.N*4 >= l.spreadWidth(s.N)*l.spreadQuarters
}
