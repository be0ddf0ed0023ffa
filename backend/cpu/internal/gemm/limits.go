package gemm

// limits describe an instruction set for the selection of a way: its kernel families, and the range in which each is
// fastest. They contain no functions, so every machine can compute the way that a call uses on another machine. The
// measurements are in docs/log/benchmarks.md.
type limits struct {
	pairs bool // products of bfloat16, of operands that may be rounded
	tiles bool // AMX: products of bfloat16 by tiles, and of floats that are taken apart

	inPlaceRows  int  // most rows of A for rowsInPlace; 0 where there are no kernels for it
	inPlacePairs bool // and some for pairs of bfloat16
	inPlaceShort int  // longest k of a pair of several rows that is transposed on its way instead
	lateFetch    bool // the processor fetches one row's B too late: see limitsHere

	directRows int  // maximum rows of A that are multiplied with B in place, if its few columns are adjacent
	dotSplit   bool // one row and bfloat16, even and odd elements apart
	short      bool // one row and a short k
	longBlocks bool // one long row and quantised weights

	outer, outerPairs   bool // outer products of rows, for longK
	strips, stripsPairs bool // for fewColumns: k along the lanes of registers
	spreadLanes         int  // for fewColumns: columns along them; 0 where there are no such kernels
	spreadQuarters      int  // spread is faster if this many quarters of these lanes are in use
}

// limitsOf holds the limits of each instruction set.
var limitsOf = [isaCount]limits{
	Portable: {},
	AVX2: {
		inPlaceRows: 32, inPlaceShort: 64, directRows: 32, short: true, longBlocks: true,
		outer: true, strips: true, spreadLanes: 8, spreadQuarters: 2,
	},
	AVX512: {
		inPlaceRows: 64, inPlaceShort: 64, directRows: 32, dotSplit: true, short: true, longBlocks: true,
		outer: true, strips: true,
	},
	AVX512BF16: {
		inPlaceRows: 64, inPlaceShort: 64, directRows: 32, dotSplit: true, short: true, longBlocks: true,
		outer: true, strips: true,
		pairs: true, inPlacePairs: true, outerPairs: true, stripsPairs: true,
	},
	AMX: { // inPlaceShort is 0: not measured there
		inPlaceRows: 64, directRows: 32, dotSplit: true, short: true, longBlocks: true,
		outer: true, strips: true, spreadLanes: 16, spreadQuarters: 3,
		pairs: true, tiles: true, lateFetch: true,
	},
	NEON: {},
}

// spreadWidth returns the number of adjacent columns in spread's format for cols columns.
func (l *limits) spreadWidth(cols int) int {
	if half := l.spreadLanes / 2; cols <= half {
		return half
	}
	return upTo(cols, l.spreadLanes)
}
