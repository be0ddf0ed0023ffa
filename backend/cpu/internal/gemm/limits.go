package gemm

// limits are what the choice of a way knows of an instruction set: which families of
// kernels it has, and from where to where each is fastest. They hold no function, so
// that every machine can say which way a product takes on another. The figures
// behind them are in docs/log/benchmarks.md.
type limits struct {
	pairs bool // products of bfloat16, of operands that may be rounded
	tiles bool // AMX: products of bfloat16 by tiles, and of floats that are taken apart

	inPlaceRows  int  // most rows of A for rowsInPlace; 0 where there are no kernels for it
	inPlacePairs bool // and some for pairs of bfloat16
	inPlaceShort int  // longest k of a pair of several rows that is transposed on its way instead
	lateFetch    bool // the processor fetches one row's B too late: see limitsHere

	directRows int  // most rows of A that are multiplied with B as it lies, its few columns side by side
	dotSplit   bool // one row and bfloat16, even and odd elements apart
	short      bool // one row and a short k
	longBlocks bool // one long row and quantised weights

	outer, outerPairs   bool // outer products of rows, for longK
	strips, stripsPairs bool // for fewColumns: k along the lanes of registers
	spreadLanes         int  // for fewColumns: columns along them; 0 where there are no such kernels
	spreadQuarters      int  // so many quarters of these lanes are in use where that is faster
}

// limitsOf are those of each instruction set.
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
	AMX: { // inPlaceShort is 0: nobody has measured it there
		inPlaceRows: 64, directRows: 32, dotSplit: true, short: true, longBlocks: true,
		outer: true, strips: true, spreadLanes: 16, spreadQuarters: 3,
		pairs: true, tiles: true, lateFetch: true,
	},
	NEON:     {strips: true},
	NEONBF16: {strips: true, pairs: true},
}

// spreadWidth is how many columns lie side by side for spread, of so many.
func (l *limits) spreadWidth(cols int) int {
	if half := l.spreadLanes / 2; cols <= half {
		return half
	}
	return upTo(cols, l.spreadLanes)
}
