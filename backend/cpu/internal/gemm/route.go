package gemm

// A route is a row of the dispatch table, which alone determines how a call is computed: the first matching row is
// used. If you change it, update testdata/routes.txt and the table in docs/gemm.md.
type route struct {
	name  string
	way   way
	class string // the shapes it matches, as listed in docs/gemm.md
	needs string // the kernels that it needs
	why   string // the measured gain, from docs/log/benchmarks.md

	fits func(s *shape) bool

	filtersA, filtersB bool // applies a Filter of A or B; Run refuses others
}

// way is an algorithm that one or more routes use.
type way interface {
	// need returns the maximum scratch memory for calls of this shape and of smaller ones.
	need(s *shape) Scratch
	// run computes the call of a job.
	run(j *job)
}

// routes holds the routes in the order in which they are tried. A way determines the order
// in which an element of C is summed, so a route may depend on the call and the instruction
// set, but never on the number of workers. C has M rows and N columns, and K is the length
// of the sums; x, W, dy and so on are the operands in a linear layer.
var routes = []route{
	{
		name: "nothing", way: nothingWay{}, fits: (*shape).isNothing,
		class: "no pair, or K or Alpha 0 in all", needs: "-", why: "C keeps its initial value",
	},
	{
		name: "panels", way: panelsWay{}, fits: (*shape).fitsInvariantPanels,
		class: "batch-invariant: dy·W, N > 64, K > 128", needs: "panels",
		why: "tasks of few rows would read B over and over",
	},
	{
		name: "rowsInPlace", way: rowBlocksWay{rowsInPlaceWay{}}, fits: (*shape).fitsInvariantInPlace,
		class: "batch-invariant: x·Wᵀ, N ≥ 8, not quantised", needs: "inPlace",
		why: "one way for any number of rows, 32 or 64 at a time: 1 to 64 rows take 0.96 to 1.2 times as long, 512 rows 1.4 to 2 times",
	},
	{
		name: "fewRows", way: rowBlocksWay{fewRowsWay{}}, fits: (*shape).isInvariant,
		class: "batch-invariant: all others, without a transposed A", needs: "rows",
		why: "one way for any number of rows, 8 at a time: 64 rows of nf4 take 1.6 times as long",
	},
	{
		name: "tilesTransposed", way: tilesWay{}, fits: (*shape).fitsTilesTransposed,
		class: "x·Wᵀ, N > 64, 2 to 64 rows; 25 to 127 if both operands are split", needs: "transposed (AMX)",
		why: "rows of a weight are rows of a tile, without packing: 8 rows 0.9 → 1.6 times torch",
	},
	{
		name: "tilesFewColumns", way: tilesWay{fewColumns: true}, fits: (*shape).fitsTilesFewColumns, filtersA: true,
		class: "x·Aᵀ and dy·B of an adapter, 64 rows or more, N from 12 (rounded) or 33 to 64", needs: "transposed (AMX)",
		why: "1.4 times fewColumns; panels now compute most of it",
	},
	{
		name: "rowsInPlace", way: rowsInPlaceWay{}, fits: (*shape).fitsRowsInPlace,
		class: "x·Wᵀ of 1 to 64 rows, by instruction set and the length of k", needs: "inPlace",
		why: "packing B would take longer than multiplying: 8 rows 2.5-3.5 times torch",
	},
	{
		name: "panels", way: panelsWay{}, fits: (*shape).fitsPanelsOfRows, filtersA: true, filtersB: true,
		class: "dhᵀ·x of 9 to 32 rows, rounded", needs: "panels (AMX)",
		why: "tiles are faster than longK, including packing",
	},
	{
		name: "longK", way: longKWay{}, fits: (*shape).isLongK, filtersB: true,
		class: "dhᵀ·x of at most 32 rows, N ≥ 128, K ≥ 256", needs: "rows; outer if available",
		why: "the gradient of an adapter's A: 1.5-4.9 times torch",
	},
	{
		name: "fewRows", way: fewRowsWay{}, fits: (*shape).fitsFewRows,
		class: "at most 8 rows", needs: "rows",
		why: "decoding waits for memory: nf4 2.3 times bfloat16",
	},
	{
		name: "fewRows", way: fewRowsWay{}, fits: (*shape).fitsFewRowsDirect,
		class: "dy·B of an adapter, at most 32 rows, N ≤ 64", needs: "rows",
		why: "B is small and need not be packed",
	},
	{
		name: "panels", way: panelsWay{}, fits: (*shape).isQuantized, filtersA: true, filtersB: true,
		class: "quantised weights", needs: "panels",
		why: "the ways below do not widen them",
	},
	{
		name: "fewRows", way: fewRowsWay{}, fits: (*shape).fitsFewRowsOuter,
		class: "other dhᵀ·x of at most 32 rows", needs: "rows",
		why: "packing B would take longer than multiplying",
	},
	{
		name: "fewColumns", way: fewColumnsWay{}, fits: (*shape).fitsFewColumns, filtersA: true,
		class: "x·Aᵀ of an adapter, N ≤ 64 (16 by tiles), K ≥ 192", needs: "strips, or spread",
		why: "29-37 → 66-78 % of peak on AVX2, 45-53 → 80-84 % on AMX",
	},
	{
		name: "transposeResult", way: transposeResultWay{}, fits: (*shape).fitsTransposeResult,
		class: "dyᵀ·h, N ≤ 64, more than 128 rows", needs: "as for Cᵀ",
		why: "the gradient of an adapter's B: 1.2-19 times torch",
	},
	{
		name: "panels", way: panelsWay{}, fits: (*shape).isAny, filtersA: true, filtersB: true,
		class: "all others: many rows", needs: "panels",
		why: "84-94 % of peak",
	},
}

// Thresholds that are equal for all instruction sets. The others are in limits.
const (
	rowsFew     = 8   // maximum rows in decoding
	rowsOuter   = 32  // maximum rows of the gradient of an adapter's A
	colsThin    = 64  // maximum columns of an adapter's multiplication
	rankMost    = 128 // maximum k of an adapter's multiplication
	longKLeast  = 256 // minimum k of one pair for longK
	fewColsK    = 192 // minimum k for fewColumns and rounded fewRowsDirect
	colsByTiles = 16  // columns from which bfloat16 tiles are faster than strips

	tilesLeast, tilesMost         = 2, 64   // rows of tilesTransposed
	tilesBothLeast, tilesBothMost = 25, 127 // the same if both operands are split
	piecesRows                    = 48      // rows from which splitting B pays otherwise
	tilesColsRows                 = 64      // rows of tilesFewColumns
	tilesColsPairs                = 12      // its minimum columns if operands are rounded; with fewer, strips are bound by reading A
	tilesColsPieces               = 33      // the same if they are split; also for columns of a down of RunAfter
	downPairs                     = 8       // minimum columns of a down if operands are rounded; with fewer, strips read A before B is packed

	inPlaceCols      = 8        // minimum columns for rowsInPlace
	inPlaceK         = 512      // minimum k for several rows (Zen 4)
	inPlaceKPairs    = 1024     // the same if both ways multiply pairs of bfloat16
	inPlaceRowsPairs = 48       // maximum rows in that case
	inPlaceRowsMixed = 12       // the same if only panels would multiply pairs
	inPlaceKOne      = 2048     // minimum k for one row
	inPlaceKSplit    = 2048 + 1 // the same if the alternative is dotSplit, which needs L1 for x
	inPlaceKLate     = 512      // for any number of rows with lateFetch, or if no way has dotSplit (Zen 3: 1.2 to 1.4 times as fast from memory); shorter rows belong to attention heads, in cache
)

// shape holds the properties that routes depend on: sizes, layouts and types of a call on an instruction set. Data is
// not read.
type shape struct {
	*Call
	limits *limits
	mode   mode // of the engine
	rounds bool // operands may be rounded, and are where that is faster

	// The bits of a row may not depend on M. This excludes calls with a transposed A, whose rows belong to the
	// gradient of a weight and not to a batch.
	invariant bool

	e *Engine // only for need

	// Totals over the pairs that are not idle:
	depth   int  // the sum of their k
	longest int  // the longest k
	longB   Elem // the type of its B
	plainA  bool // every A is float32 with its k side by side, as activations are
	directA bool // the same, or may be widened to that: see direct
	acrossA bool // every A is float32 and transposed
	transA  bool // every A is transposed
	plainB  bool // every B has its columns side by side, and is not quantised
	transB  bool // every B has its k side by side, as the weights of a checkpoint
	quantB  bool // some B is quantised
}

// shapeOf returns the shape of a call.
func (e *Engine) shapeOf(c *Call) shape { return shapeOf(c, &e.k.limits, e.mode) }

func shapeOf(c *Call, l *limits, m mode) shape {
	s := shape{Call: c, limits: l, mode: m, rounds: m.bf16 && l.pairs, invariant: m.invariant || c.Invariant,
		plainA: true, directA: true, acrossA: true, transA: true, plainB: true, transB: true}
	for i := range c.Pairs {
		p := &c.Pairs[i]
		if p.idle() {
			continue
		}
		s.depth += p.K
		if p.K > s.longest {
			s.longest, s.longB = p.K, p.B.Elem
		}
		float, quantized := p.A.Elem == F32, p.B.Elem.Quantized()
		s.invariant = s.invariant && !p.A.Trans
		s.plainA = s.plainA && float && !p.A.Trans
		s.directA = s.directA && s.direct(&p.A) && !p.A.Trans
		s.acrossA = s.acrossA && float && p.A.Trans
		s.transA = s.transA && p.A.Trans
		s.plainB = s.plainB && !p.B.Trans && !quantized
		s.transB = s.transB && p.B.Trans
		s.quantB = s.quantB || quantized
	}
	return s
}

// route returns the first matching route.
func (s *shape) route() *route {
	for i := range routes {
		if routes[i].fits(s) {
			return &routes[i]
		}
	}
	return nil // isAny fits all
}

func (s *shape) isNothing() bool   { return s.depth == 0 || s.M == 0 || s.N == 0 }
func (s *shape) isQuantized() bool { return s.quantB }
func (s *shape) isInvariant() bool { return s.invariant }
func (s *shape) isAny() bool       { return true }

// single reports whether a call is of one row and may be computed in ways of its own for that.
func (s *shape) single() bool { return s.M == 1 && !s.invariant }

func (s *shape) fitsInvariantPanels() bool {
	return s.invariant && s.N > colsThin && !s.transB && !s.quantB && s.longest > shortMost
}

// The kernels in place widen codes to floats, for one row too, and fewRows need not.
func (s *shape) fitsInvariantInPlace() bool {
	return s.invariant && s.limits.inPlaceRows > 0 && s.N >= inPlaceCols && s.transB && !s.quantB
}

func (s *shape) fitsTilesTransposed() bool {
	if !s.limits.tiles || s.N <= colsThin || !s.transB || !s.directA || s.longest <= rankMost {
		return false
	}
	f := s.manyRows()
	if least, most := tilesRows(f); s.M < least || s.M > most {
		return false
	}
	for i := range s.Pairs {
		switch p := &s.Pairs[i]; {
		case p.idle():
		case f != inPairs && !p.inPieces() && p.Alpha != 1:
			return false // alpha·B is more than a bfloat16
		case p.B.Elem == F16 && !s.rounds && s.M < piecesRows:
			return false // rowsInPlace is faster
		case p.B.Elem != BF16 && p.K > rankMost && s.M <= rowsFew:
			return false // so it is here
		}
	}
	return true
}

func (s *shape) fitsTilesFewColumns() bool {
	least := tilesColsPieces
	if s.rounds {
		least = tilesColsPairs
	}
	if !s.limits.tiles || s.M < tilesColsRows || s.N < least || s.N > colsThin || !s.plainA || s.longest <= rankMost {
		return false
	}
	for i := range s.Pairs {
		if p := &s.Pairs[i]; !p.idle() && p.B.Elem != F32 {
			return false
		}
	}
	return true
}

func (s *shape) fitsRowsInPlace() bool {
	if s.N < inPlaceCols || s.M > s.limits.inPlaceRows || !s.transB || s.quantB && s.M <= rowsFew {
		return false
	}
	switch {
	case s.M == 1 && (s.limits.lateFetch || !s.limits.dotSplit):
		return s.longest >= inPlaceKLate
	case s.M == 1 && s.longB == BF16:
		return s.longest >= inPlaceKSplit
	case s.M == 1:
		return s.longest >= inPlaceKOne
	case s.M <= rowsFew:
		return true
	case s.limits.tiles && s.panels() != inFloats:
		return false
	case !s.rounds:
		return s.longest >= inPlaceK
	case s.longB != BF16:
		return s.M <= inPlaceRowsMixed && s.longest >= inPlaceK
	}
	return s.M <= inPlaceRowsPairs && s.longest >= inPlaceKPairs
}

// isLongK reports whether the shape suits longK, whichever way it uses.
func (s *shape) isLongK() bool {
	return s.M <= rowsOuter && s.N >= 2*colsFew && s.acrossA && s.plainB && s.longest >= longKLeast
}

func (s *shape) fitsPanelsOfRows() bool {
	return s.isLongK() && s.rounds && s.limits.tiles && s.M > rowsFew
}

func (s *shape) fitsFewRows() bool { return s.M <= rowsFew }

// Packing panels of pairs is faster than fewRowsDirect where k is short.
func (s *shape) fitsFewRowsDirect() bool {
	return s.M <= s.limits.directRows && s.N <= colsThin && s.plainA && s.plainB && (!s.rounds || s.longest >= fewColsK)
}

func (s *shape) fitsFewRowsOuter() bool { return s.M <= rowsOuter && s.acrossA && s.plainB }

func (s *shape) fitsFewColumns() bool {
	most := colsThin
	if s.rounds && s.limits.tiles {
		most = colsByTiles
	}
	return s.limits.strips && s.N <= most && s.depth >= fewColsK && s.directA
}

func (s *shape) fitsTransposeResult() bool {
	return s.N <= colsThin && s.transA && s.M > 2*colsThin
}
