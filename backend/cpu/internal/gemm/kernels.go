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

	// pairs are the kernels for calls whose operands may be rounded to bfloat16; piecesOfA and piecesOfBoth are the
	// kernels for calls whose operands are split (see pieces.go).
	pairs, piecesOfA, piecesOfBoth *kernels
}

// panelKernels multiply panels, into which operands are packed.
type panelKernels struct {
	mr, nr int // rows and columns of a tile
	grain  int // rows of a panel are a multiple of it, except in the last panel
	kc     int // longest run of words between two updates of C

	smaller bool // tasks of fewer columns than blockCols are no slower

	// pairSize is the number of elements along k in one word of a panel: 1, or 2 for pairs of bfloat16, which the
	// tile multiplies and adds at once.
	pairSize int
	// run is the number of words that the tile processes at once, if more than one. The words of a pair of operands
	// are a multiple of it; their order in a panel is a contract between tile and pack.
	run int

	// tile computes C[rows,cols] = (C if add) + bias + a·b for packed panels a [k][rows] and b [k][nr] of words; rows
	// ≤ mr, cols ≤ nr, ldc in elements, bias [cols] or nil. ahead is the distance in bytes from a to the memory that
	// the next calls read, which the tile prefetches; it is only a hint.
	tile func(rows, k int, a, b, c unsafe.Pointer, ldc, cols int, add bool, bias unsafe.Pointer, ahead int)

	// tiles computes several whole tiles next to each other, without a bias; the panels of b are panel elements
	// apart. Instruction sets that do not profit from it have none.
	tiles func(rows, k int, a, b unsafe.Pointer, panel int, c unsafe.Pointer, ldc, tiles int, add bool, ahead int)

	// pack writes dst[t*width+i] = alpha·src(i,t) for i < lanes and t < k, and zero for lanes ≤ i < width, or pairs
	// of these values. src(i,t) is the element at src + i*lane + t*step bytes; lane or step is the size of an
	// element. width is at most mr, or one of spread's, or a multiple of 16, or nr. The last run is padded with
	// zeros. pack may write up to packSlack elements past the end of dst.
	pack func(dst unsafe.Pointer, width int, src unsafe.Pointer, elem Elem, lane, step, lanes, k int, alpha float32)

	// packA packs panels of A for AMX tiles, whose order differs from panels of B: a run of row 0, then the same run
	// of row 1, and so on. If A is split into pieces, it reports whether all of A is finite. Other instruction sets
	// have no packA and use pack for both.
	packA func(dst unsafe.Pointer, rows int, src unsafe.Pointer, elem Elem, row, step, k int, alpha float32) (finite bool)

	// across packs several whole panels at once, from rows of B in place: dst[p*panel+t*nr+i] = src(p*nr+i,t) for p <
	// panels, where lane is the size of an element and k a multiple of pairSize. Instruction sets that do not profit
	// from it have none.
	across func(dst unsafe.Pointer, panel int, src unsafe.Pointer, elem Elem, step, panels, k int)

	// peak measures the peak rate: it multiplies and adds as much as a tile of runs runs of words, in registers only.
	// Instruction sets whose tile reaches the peak have none.
	peak func(runs int)
}

// pieceKernels multiply floats exactly on bfloat16 tiles: a float is split into pieceCount pieces. Panels of A
// contain the pieces of each word along k. Panels of B contain pieces for pairs that are not stored as bfloat16;
// these pairs come last.
type pieceKernels struct {
	// tile is tile of panelKernels for k words of B that are whole, and then apart words that
	// are taken apart.
	tile func(rows, k, apart int, a, b, c unsafe.Pointer, ldc, cols int, add bool, bias unsafe.Pointer, ahead int)

	// pack and across are as in panelKernels, for a B that is split; the pieces of a run are adjacent. They are twice
	// as fast if A is known to be finite. pack reports whether all packed elements are finite.
	pack   func(dst unsafe.Pointer, width int, src unsafe.Pointer, elem Elem, lane, step, lanes, k int, finiteA bool) (finite bool)
	across func(dst unsafe.Pointer, panel int, src unsafe.Pointer, elem Elem, step, panels, k int, finiteA bool)
}

// transposedKernels multiply rows of B by columns of Aᵀ, for tilesTransposed: rows are rows of B, cols are columns of
// A.
type transposedKernels struct {
	// tile computes sums[rows,cols] = (sums if add) + a·b, where a is B and b a panel of A. Rows of a are lane bytes
	// apart, or packed if lane is 0; products is the number of piece products per word. rows exceeds mr/2; rows of
	// sums are nr apart, and free has space for as many. tile also prefetches tilesBytes of each of several rows at
	// address next, ldnext bytes apart; fetches returns the number of rows.
	tile    func(rows, cols, k, products int, a unsafe.Pointer, lane int, b, sums, free unsafe.Pointer, add bool, next uintptr, ldnext int)
	fetches func(k, products int) int

	// back writes the result: C[cols,rows] = (C if add) + bias + sumsᵀ. sums has pieces pieces of each column, all
	// first pieces before the second ones.
	back func(rows, cols, pieces int, sums, free, c unsafe.Pointer, ldc int, add bool, bias unsafe.Pointer)

	// add is back without the transpose: C[rows,cols] = (C if add) + bias + sums.
	add func(rows, cols int, sums, c unsafe.Pointer, ldc int, add bool, bias unsafe.Pointer)

	// finite is packA for float32 with contiguous k if all factors are finite. It reports whether the packed elements
	// are finite; if not, packA has to pack them again.
	finite func(dst unsafe.Pointer, rows int, src unsafe.Pointer, row, k int, alpha float32) bool

	// parted packs at most rowsFew rows of float32 with contiguous k so that each piece is a separate row; back adds
	// the rows up.
	parted func(dst, src unsafe.Pointer, rows, row, k int, alpha float32)
}

// inPlaceKernels multiply a panel of rows of A with rows of B in place, without packing them. The kernels of pairs
// take bfloat16.
type inPlaceKernels struct {
	// multiply computes c[i*ldc+j] += alpha·x[i]·w[j*ldw:] over k for i < rows and skip ≤ j < cols[rows], with ldw in
	// bytes; it reads all cols rows of w, and prefetches the memory ahead bytes after the first. x is a panel of rows
	// rows of inPlaceFloats(k) floats, packed by panel. The sum for a row of x and a row of w does not depend on rows
	// and skip.
	multiply  func(rows, k int, x, w unsafe.Pointer, elem Elem, ldw int, c unsafe.Pointer, ldc, skip, ahead int, alpha float32)
	panel     panelRow
	rows      int
	cols      []int
	panelRows int // maximum rows of a panel if one panel does not hold all rows
}

// panelRow puts k elements of x into a row of a panel: into every rows-th register, beginning
// with number row.
type panelRow func(dst unsafe.Pointer, row, rows int, x unsafe.Pointer, k int, elem Elem)

// rowKernels multiply a few rows of A with B in place, each row separately.
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

	// direct computes C[rows,cols] += alpha·a·b over k for b in place, rows ≤ directRows. Element (i,t) of a is the
	// float32 at i*arow + t*acol, row t of b is at t*ldb, all in bytes.
	direct     func(rows, k int, a unsafe.Pointer, arow, acol int, b unsafe.Pointer, elem Elem, ldb int, c unsafe.Pointer, ldc, cols int, alpha float32)
	directRows int

	// unblock widens consecutive blocks of a quantised type to quantBlock floats each. dotBlocks is dots for w of
	// such a type, with k in blocks and rows ≤ dotRows. dotBlocksLong is dotBlocks for one row of x and n a multiple
	// of longRows, with the same sums; it is faster if x is long. Instruction sets that do not profit from it have
	// none.
	unblock       func(dst, src unsafe.Pointer, elem Elem, blocks int)
	dotBlocks     func(rows, k int, x unsafe.Pointer, ldx int, w unsafe.Pointer, elem Elem, ldw, n int, out unsafe.Pointer, ldo int)
	dotBlocksLong func(k int, x, w unsafe.Pointer, elem Elem, ldw, n int, out unsafe.Pointer)
}

// stripKernels multiply rows of A with a few columns of B: a register holds several elements
// of one column, along k.
type stripKernels struct {
	// multiply computes c[i*ldc+j] += alpha·x[i*ldx:]·w[j] over k for i < rows[cols], if that is not 0, and j < cols,
	// all in float32. It prefetches as much as it reads of x, from ahead bytes after x on. Word t of w[j] is element
	// [t/lanes][j][t%lanes] of w, zero beyond k. Kernels of pairs round x to bfloat16; panel has rounded w.
	multiply func(cols, k int, x unsafe.Pointer, ldx int, w, c unsafe.Pointer, ldc, ahead int, alpha float32)
	rows     []int
	lanes    int
	panel    panelRow // nil where columns are copied by packLanes
}

// spreadKernels multiply rows of A with a few columns of B: a register holds one element of
// several columns.
type spreadKernels struct {
	// multiply computes c[i*ldc+j] += alpha·x[i*ldx:]·w[:,j] over k for i < rows and j < cols, all in float32, and
	// prefetches as in strips. Element t of column j is w[t*width+j], with the width of spreadWidth, zero-padded to
	// whole registers; if there are few columns, zip then interleaves several elements along k. The first-level cache
	// needs enough ways for w and for the rows, which may be a power of two apart: for 8 rows 12 ways suffice (a Xeon
	// of 2024), but 8 do not (Zen 4); for 6 rows 8 ways do (Zen 3).
	multiply   func(cols, k int, x unsafe.Pointer, ldx int, w, c unsafe.Pointer, ldc, ahead int, alpha float32)
	zip        func(w unsafe.Pointer, cols, k int)
	rows, cols int
}

// outerKernels add up outer products of columns of A and rows of B, for longK.
type outerKernels struct {
	// multiply computes C[rows,cols] += alpha·a·b over k for a float32 b in place, with rows ldb bytes apart; cols ≤
	// cols[rows]. Word t of row i of a is at 4i + t*step bytes. Kernels of pairs round b to bfloat16; a is rounded
	// already. It prefetches half as much as it reads from ahead bytes after b on, and half from apart bytes after
	// that.
	multiply func(rows, k int, a unsafe.Pointer, step int, b unsafe.Pointer, ldb, ahead, apart int, c unsafe.Pointer, ldc, cols int, alpha float32)
	cols     []int
}

// forFamily returns the kernels that multiply panels of a family.
func (k *kernels) forFamily(f family) *kernels {
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

// kcRank keeps an adapter from costing another block of k: it makes kc longer than a power of two, the usual k of a
// layer, so that the rank of an adapter fits too.
const kcRank = 32

// splitPadded returns the length of a row of k elements after split.
func splitPadded(k int) int { return ceil(k, 32) * 32 }

// words returns the number of panel words for elements along k.
func (k *kernels) words(elements int) int {
	run := max(1, k.run)
	return ceil(elements, k.pairSize*run) * run
}

// pairWords returns the length of a pair on the k axis of panels.
func (k *kernels) pairWords(p *Pair) int {
	if p.idle() {
		return 0
	}
	return k.words(p.K)
}

// blockLength returns the length of equal blocks, of at most kc, that a k axis is divided into.
func (k *kernels) blockLength(depth int) int {
	run := max(1, k.run)
	return ceil(stretchOf(depth, k.kc), run) * run
}

// perWord returns the number of floats per word of A in a panel: more than one if A is split.
func (k *kernels) perWord() int {
	if k.pieces != nil {
		return pieceCount
	}
	return 1
}

// panelFloats returns the number of floats for a row of a panel of A with words words along k.
func (k *kernels) panelFloats(words int) int { return words * k.perWord() }

// splitsB reports whether B of a pair is split.
func (k *kernels) splitsB(p *Pair) bool { return k.pieces != nil && p.inPieces() }

// columnFloats returns the number of floats for a column of B of a pair with words words along k.
func (k *kernels) columnFloats(p *Pair, words int) int {
	if k.splitsB(p) {
		return words * pieceCount
	}
	return words
}

// inPlaceFloats returns the length of a row of k elements in a panel for inPlace.
func (k *kernels) inPlaceFloats(elements int) int { return ceil(elements, 32) * 32 / k.pairSize }

// inPlaceMostCols is the most columns that a kernel of inPlace takes.
const inPlaceMostCols = 6

// packSlack is the number of elements that pack may write past its destination: a full vector store with only one
// valid element.
const packSlack = 15

// at returns p + n bytes.
func at(p unsafe.Pointer, n int) unsafe.Pointer { return unsafe.Add(p, n) }

// floats returns the address of s[i].
func floats(s []float32, i int) unsafe.Pointer { return unsafe.Pointer(&s[i]) }
