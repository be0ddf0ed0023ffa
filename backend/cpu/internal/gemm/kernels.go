package gemm

import "unsafe"

// kernels are the inner loops of one instruction set, in families: a family that the set
// lacks is nil. Pointers carry no length: the callers in this package have checked the
// shapes.
type kernels struct {
	isa    ISA
	limits limits // what decides between the ways

	*panelKernels                    // every set has these
	pieces        *pieceKernels      // of piecesOfA and piecesOfBoth
	transposed    *transposedKernels // of pairs, piecesOfA and piecesOfBoth of AMX
	inPlace       *inPlaceKernels
	rows          *rowKernels
	strips        *stripKernels
	spread        *spreadKernels
	outer         *outerKernels

	// fetch asks for bytes > 0 bytes from p on, in the second-level cache.
	fetch func(p unsafe.Pointer, bytes int)

	// pairs are those for calls whose operands may be rounded to bfloat16; piecesOfA and
	// piecesOfBoth those for calls whose operands are taken apart (see pieces.go).
	pairs, piecesOfA, piecesOfBoth *kernels
}

// panelKernels multiply panels, into which operands are packed.
type panelKernels struct {
	mr, nr int // rows and columns of a tile
	grain  int // rows of a panel are a multiple of it, but for the last panel
	kc     int // longest run of words between two updates of C

	smaller bool // tasks of fewer columns than blockCols are no slower

	// pairSize is how many elements along k make one word of a panel: 1, or
	// 2 for pairs of bfloat16, which the tile multiplies and adds at once.
	pairSize int
	// run is how many words the tile takes at once, where more than one: the
	// words of a pair of operands are a multiple of it, and how these words
	// lie in a panel is between tile and pack.
	run int

	// tile computes C[rows,cols] = (C if add) + bias + a·b for packed
	// panels a [k][rows] and b [k][nr] of words; rows ≤ mr, cols ≤ nr, ldc in
	// elements, bias [cols] or nil. ahead is how many bytes behind a lies what
	// the next calls read there, to be fetched meanwhile; it is only a hint.
	tile func(rows, k int, a, b, c unsafe.Pointer, ldc, cols int, add bool, bias unsafe.Pointer, ahead int)

	// tiles is tile for so many whole ones side by side, without a bias; the panels
	// of b are panel elements apart. Instruction sets that gain nothing by it have none.
	tiles func(rows, k int, a, b unsafe.Pointer, panel int, c unsafe.Pointer, ldc, tiles int, add bool, ahead int)

	// pack writes dst[t*width+i] = alpha·src(i,t) for i < lanes and t < k,
	// and zero for lanes ≤ i < width, or the pairs of these; src(i,t) is the element at src +
	// i*lane + t*step bytes, lane or step being the size of an element.
	// width is at most mr, or one of spread's, or a multiple of 16, or nr. Words behind the last, up to a
	// whole run, are zeroes. It may write up to packSlack elements past the end of dst.
	pack func(dst unsafe.Pointer, width int, src unsafe.Pointer, elem Elem, lane, step, lanes, k int, alpha float32)

	// packA packs panels of A for tiles of AMX, which lie otherwise than those of B: a run of
	// row 0, then the same run of row 1, and so on. Where A is taken apart into pieces, it
	// reports whether all of it is finite. Other instruction sets have no packA: pack serves
	// both.
	packA func(dst unsafe.Pointer, rows int, src unsafe.Pointer, elem Elem, row, step, k int, alpha float32) (finite bool)

	// across packs several whole panels at once, from rows of B as they lie:
	// dst[p*panel+t*nr+i] = src(p*nr+i,t) for p < panels, lane being the size of an
	// element and k a multiple of pairSize. Instruction sets that gain nothing by it
	// have none.
	across func(dst unsafe.Pointer, panel int, src unsafe.Pointer, elem Elem, step, panels, k int)

	// peak measures the peak rate: it multiplies and adds as much as a tile of so many runs
	// of words, in registers alone. Instruction sets whose tile is as fast have none.
	peak func(runs int)
}

// pieceKernels multiply floats exactly on tiles of bfloat16: a float is taken apart into
// pieceCount pieces. Panels of A have the pieces of each word along k. Panels of B have them
// for pairs that do not lie in bfloat16, which come behind all others.
type pieceKernels struct {
	// tile is tile of panelKernels for k words of B that are whole, and then apart words that
	// are taken apart.
	tile func(rows, k, apart int, a, b, c unsafe.Pointer, ldc, cols int, add bool, bias unsafe.Pointer, ahead int)

	// pack and across are those of panelKernels for a B that is taken apart; the pieces of a
	// run lie side by side. They are twice as fast where A is known to be finite. pack
	// reports whether all that it packs is finite.
	pack   func(dst unsafe.Pointer, width int, src unsafe.Pointer, elem Elem, lane, step, lanes, k int, finiteA bool) (finite bool)
	across func(dst unsafe.Pointer, panel int, src unsafe.Pointer, elem Elem, step, panels, k int, finiteA bool)
}

// transposedKernels multiply rows of B with columns of Aᵀ, for tilesTransposed: rows are
// those of B, cols those of A.
type transposedKernels struct {
	// tile computes sums[rows,cols] = (sums if add) + a·b, where a is B and b a panel of A.
	// Rows of a are lane bytes apart, or packed if lane is 0; products is how many
	// products of pieces make one of words. There are more than mr/2 rows; rows of sums
	// are nr apart, and free is room for as many. Meanwhile it fetches tilesBytes of each
	// of some rows at the address next, ldnext bytes apart: fetches says of how many.
	tile    func(rows, cols, k, products int, a unsafe.Pointer, lane int, b, sums, free unsafe.Pointer, add bool, next uintptr, ldnext int)
	fetches func(k, products int) int

	// back brings the result home: C[cols,rows] = (C if add) + bias + sumsᵀ. Sums have so
	// many pieces of each column, all first pieces before the second ones.
	back func(rows, cols, pieces int, sums, free, c unsafe.Pointer, ldc int, add bool, bias unsafe.Pointer)

	// add is back without the transpose: C[rows,cols] = (C if add) + bias + sums.
	add func(rows, cols int, sums, c unsafe.Pointer, ldc int, add bool, bias unsafe.Pointer)

	// finite is packA for float32 with k side by side, where all factors are finite. It
	// reports whether those that it packs are; if not, packA has to do it.
	finite func(dst unsafe.Pointer, rows int, src unsafe.Pointer, row, k int, alpha float32) bool

	// parted packs at most rowsFew rows of float32 with k side by side so that each piece
	// is a row of its own, which back adds up.
	parted func(dst, src unsafe.Pointer, rows, row, k int, alpha float32)
}

// inPlaceKernels multiply a panel of rows of A with rows of B as they lie in memory, without
// packing them. Those of pairs are for bfloat16.
type inPlaceKernels struct {
	// multiply computes c[i*ldc+j] += alpha·x[i]·w[j*ldw:] over k for i < rows ≤
	// rows and skip ≤ j < cols[rows], ldw in bytes; it reads all
	// cols rows of w, and fetches what lies ahead bytes behind the first.
	// x is a panel of so many rows of inPlaceFloats(k) floats, where panel has
	// put each of them. A row of x and one of w are one sum, whatever rows
	// and skip are.
	multiply  func(rows, k int, x, w unsafe.Pointer, elem Elem, ldw int, c unsafe.Pointer, ldc, skip, ahead int, alpha float32)
	panel     panelRow
	rows      int
	cols      []int
	panelRows int // rows of a panel at most where one does not hold all
}

// panelRow puts k elements of x into a row of a panel: into every rows-th register, beginning
// with number row.
type panelRow func(dst unsafe.Pointer, row, rows int, x unsafe.Pointer, k int, elem Elem)

// rowKernels multiply a few rows of A with B as it lies, each row by itself.
type rowKernels struct {
	// dots computes out[i*ldo+j] = x[i*ldx:]·w[j*ldw:] over k for i < rows
	// ≤ dotRows and j < n, n > 0; ldw in bytes. A row of x or w is one sum,
	// whatever rows and n are.
	dots    func(rows, k int, x unsafe.Pointer, ldx int, w unsafe.Pointer, elem Elem, ldw, n int, out unsafe.Pointer, ldo int)
	dotRows int

	// dotSplit computes out[j] = x·w[j·ldw:] over k for j < n, n > 0, and w of
	// BF16; ldw in bytes. x is as split makes it of a row, splitPadded(k)
	// elements. Instruction sets that gain nothing by it have none.
	split    func(dst, x unsafe.Pointer, k int)
	dotSplit func(k int, x, w unsafe.Pointer, ldw, n int, out unsafe.Pointer)

	// short computes c[j] += alpha·x·w[j*ldw:] over k > 0 for j < n, n > 0, and w of
	// F32; ldw in bytes. It is dots for one row and a short k, shortMost at most.
	// Instruction sets that gain nothing by it have none.
	short func(k int, x, w unsafe.Pointer, ldw, n int, c unsafe.Pointer, alpha float32)

	// direct computes C[rows,cols] += alpha·a·b over k for b as it lies in
	// memory, rows ≤ directRows. Element (i,t) of a is the float32 at
	// i*arow + t*acol, row t of b at t*ldb, all in bytes.
	direct     func(rows, k int, a unsafe.Pointer, arow, acol int, b unsafe.Pointer, elem Elem, ldb int, c unsafe.Pointer, ldc, cols int, alpha float32)
	directRows int

	// unblock widens blocks of a quantised type, one behind the other, to
	// quantBlock floats each. dotBlocks is dots for w of such a type, k being
	// blocks, and rows ≤ dotRows as there. dotBlocksLong is that for one row of x
	// and n a multiple of longRows, with the same sums; it is faster where x is
	// long. Instruction sets that gain nothing by it have none.
	unblock       func(dst, src unsafe.Pointer, elem Elem, blocks int)
	dotBlocks     func(rows, k int, x unsafe.Pointer, ldx int, w unsafe.Pointer, elem Elem, ldw, n int, out unsafe.Pointer, ldo int)
	dotBlocksLong func(k int, x, w unsafe.Pointer, elem Elem, ldw, n int, out unsafe.Pointer)
}

// stripKernels multiply rows of A with a few columns of B: a register holds several elements
// of one column, along k.
type stripKernels struct {
	// multiply computes c[i*ldc+j] += alpha·x[i*ldx:]·w[j] over k for i <
	// rows[cols] and j < cols, where that is not 0, float32 all, and fetches
	// as much as it reads of x, from ahead bytes behind x on. Word t of w[j] is element
	// [t/lanes][j][t%lanes] of w, zeroes beyond k; those of pairs round
	// x to bfloat16, as w has been by panel.
	multiply func(cols, k int, x unsafe.Pointer, ldx int, w, c unsafe.Pointer, ldc, ahead int, alpha float32)
	rows     []int
	lanes    int
	panel    panelRow // nil where columns are copied by packLanes
}

// spreadKernels multiply rows of A with a few columns of B: a register holds one element of
// several columns.
type spreadKernels struct {
	// multiply computes c[i*ldc+j] += alpha·x[i*ldx:]·w[:,j] over k for i < rows and j
	// < cols, float32 all, and fetches as that of strips does. Element t of column j
	// is w[t*width+j], width being what spreadWidth says, with zeroes up to whole registers,
	// of which zip then puts some along k side by side where there are few
	// columns. The nearest cache must have ways for its rows, which may be a power of two
	// apart, and for w beside them: for 8 rows a Xeon of 2024 has, with 12, Zen 4 with 8
	// has not; for 6 Zen 3 has, with 8.
	multiply   func(cols, k int, x unsafe.Pointer, ldx int, w, c unsafe.Pointer, ldc, ahead int, alpha float32)
	zip        func(w unsafe.Pointer, cols, k int)
	rows, cols int
}

// outerKernels add up outer products of columns of A and rows of B, for longK.
type outerKernels struct {
	// multiply computes C[rows,cols] += alpha·a·b over k for a float32 b as it lies
	// in memory, rows of it ldb bytes apart; cols ≤ cols[rows]. Word t of
	// row i of a is at 4i + t*step bytes; those of pairs round b to bfloat16, as a
	// has been. Half as much as it reads it fetches from ahead bytes behind b on,
	// half from apart bytes behind that.
	multiply func(rows, k int, a unsafe.Pointer, step int, b unsafe.Pointer, ldb, ahead, apart int, c unsafe.Pointer, ldc, cols int, alpha float32)
	cols     []int
}

// of gives the kernels that multiply panels of a family.
func (k *kernels) of(f family) *kernels {
	switch f {
	case inPairs:
		return k.pairs
	case inPiecesOfA:
		return k.piecesOfA
	case inPiecesOfBoth:
		return k.piecesOfBoth
	}
	return k
}

// inTiles reports whether these are the kernels of AMX for operands that are rounded: tiles
// of bfloat16 without pieces.
func (k *kernels) inTiles() bool { return k.transposed != nil && k.pieces == nil }

// kcRank keeps an adapter from costing one more stretch of k: kc is longer by it than a power
// of two, which the k axis of a layer often is, so that the rank of an adapter fits too.
const kcRank = 32

// splitPadded is the length of a row of k elements as split makes it.
func splitPadded(k int) int { return ceil(k, 32) * 32 }

// words is how many words of a panel k elements take.
func (k *kernels) words(elements int) int {
	run := max(1, k.run)
	return ceil(elements, k.pairSize*run) * run
}

// pairWords is the length of a pair on the k axis of panels.
func (k *kernels) pairWords(p *Pair) int {
	if p.idle() {
		return 0
	}
	return k.words(p.K)
}

// stretch is the length of the even stretches, of at most kc, that a k axis is divided into.
func (k *kernels) stretch(depth int) int {
	run := max(1, k.run)
	return ceil(stretchOf(depth, k.kc), run) * run
}

// perWord is how many floats a word of A takes in a panel: more than one where it is
// taken apart.
func (k *kernels) perWord() int {
	if k.pieces != nil {
		return pieceCount
	}
	return 1
}

// panelFloats is what a row of a panel of A takes for so many words along k.
func (k *kernels) panelFloats(words int) int { return words * k.perWord() }

// apart reports whether B of a pair is taken apart.
func (k *kernels) apart(p *Pair) bool { return k.pieces != nil && p.inPieces() }

// columnFloats is what a column of B of a pair takes for so many words along k.
func (k *kernels) columnFloats(p *Pair, words int) int {
	if k.apart(p) {
		return words * pieceCount
	}
	return words
}

// inPlaceFloats is the length of a row of k elements in a panel for inPlace.
func (k *kernels) inPlaceFloats(elements int) int { return ceil(elements, 32) * 32 / k.pairSize }

// inPlaceMostCols is the most columns that a kernel of inPlace takes.
const inPlaceMostCols = 6

// packSlack is what pack may overwrite behind its destination: a full vector
// store of which one element counts.
const packSlack = 15

// at is p moved by n bytes.
func at(p unsafe.Pointer, n int) unsafe.Pointer { return unsafe.Add(p, n) }

// floats is the address of s[i].
func floats(s []float32, i int) unsafe.Pointer { return unsafe.Pointer(&s[i]) }
