package gemm

import "unsafe"

// kernels are the inner loops of one instruction set. Pointers carry no
// length: the callers in this package have checked the shapes.
type kernels struct {
	isa ISA

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
	// pairs are the tile and pack for calls whose Precision is BF16, nil
	// where the machine has no such products.
	pairs *kernels

	// thirds and sixths are for calls whose operands are not rounded but taken apart,
	// nil where tiles are not that fast; sixths are for long calls of B that are
	// no bfloat16. There panels of A have so many pieces of each word along k,
	// and so have those of B that hold no bfloat16, behind all others.
	thirds, sixths *kernels
	pieces         int

	// pieceTile is tile with k whole words of B and then so many apart; packApart
	// and acrossApart are pack and across for these, whose pieces lie side by side in a run:
	// twice as fast where A is known to be finite. packApart reports whether all that it
	// packs is.
	pieceTile   func(rows, k, apart int, a, b, c unsafe.Pointer, ldc, cols int, add bool, bias unsafe.Pointer, ahead int)
	packApart   func(dst unsafe.Pointer, width int, src unsafe.Pointer, elem Elem, lane, step, lanes, k int, finiteA bool) (finite bool)
	acrossApart func(dst unsafe.Pointer, panel int, src unsafe.Pointer, elem Elem, step, panels, k int, finiteA bool)

	// tile computes C[rows,cols] = (C if add) + bias + a·b for packed
	// panels a [k][rows] and b [k][nr] of words; rows ≤ mr, cols ≤ nr, ldc in
	// elements, bias [cols] or nil. ahead is how many bytes behind a lies what
	// the next calls read there, to be fetched meanwhile; it is only a hint.
	tile func(rows, k int, a, b, c unsafe.Pointer, ldc, cols int, add bool, bias unsafe.Pointer, ahead int)

	// tiles is tile for so many whole ones side by side, without a bias; the panels
	// of b are panel elements apart. Instruction sets that gain nothing by it have none.
	tiles func(rows, k int, a, b unsafe.Pointer, panel int, c unsafe.Pointer, ldc, tiles int, add bool, ahead int)

	turned *turnKernels // nil but for AMX

	// peak multiplies and adds as much as a tile of so many runs of words, with
	// nothing but registers. Instruction sets whose tile is as fast have none.
	peak func(runs int)

	// pack writes dst[t*width+i] = alpha·src(i,t) for i < lanes and t < k,
	// and zero for lanes ≤ i < width, or the pairs of these; src(i,t) is the element at src +
	// i*lane + t*step bytes, lane or step being the size of an element.
	// width is at most mr, or one of fan's, or a multiple of 16, or nr. Words behind the last, up to a
	// whole run, are zeroes. It may write up to packSlack elements past the end of dst.
	pack func(dst unsafe.Pointer, width int, src unsafe.Pointer, elem Elem, lane, step, lanes, k int, alpha float32)

	// packA is pack for panels of A, where these lie otherwise than those of B: rows
	// lanes of it side by side. It reports whether all is finite, where it is taken apart.
	// Other instruction sets have none.
	packA func(dst unsafe.Pointer, rows int, src unsafe.Pointer, elem Elem, row, step, k int, alpha float32) (finite bool)

	// across is pack for whole panels of nr lanes that lie side by side, panel
	// elements apart in dst: dst[p*panel+t*nr+i] = src(p*nr+i,t) for p <
	// panels, lane being the size of an element and k a multiple of pairSize.
	// Instruction sets that gain nothing by it have none.
	across func(dst unsafe.Pointer, panel int, src unsafe.Pointer, elem Elem, step, panels, k int)

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

	// unblock widens blocks of a quantised type, one behind the other, to
	// quantBlock floats each. dotBlocks is dots for w of such a type, k being
	// blocks, and rows ≤ dotRows as there. deepBlocks is that for one row of x
	// and n a multiple of deepRows, with the same sums; it is faster where x is
	// long. Instruction sets that gain nothing by it have none.
	unblock    func(dst, src unsafe.Pointer, elem Elem, blocks int)
	dotBlocks  func(rows, k int, x unsafe.Pointer, ldx int, w unsafe.Pointer, elem Elem, ldw, n int, out unsafe.Pointer, ldo int)
	deepBlocks func(k int, x, w unsafe.Pointer, elem Elem, ldw, n int, out unsafe.Pointer)

	// direct computes C[rows,cols] += alpha·a·b over k for b as it lies in
	// memory, rows ≤ directRows. Element (i,t) of a is the float32 at
	// i*arow + t*acol, row t of b at t*ldb, all in bytes.
	direct     func(rows, k int, a unsafe.Pointer, arow, acol int, b unsafe.Pointer, elem Elem, ldb int, c unsafe.Pointer, ldc, cols int, alpha float32)
	directRows int
	directMost int // rows of A that a call of them has at most, beyond rowsFew

	// outer computes C[rows,cols] += alpha·a·b over k for a float32 b as it lies
	// in memory, rows of it ldb bytes apart; cols ≤ outerCols[rows]. Word t of
	// row i of a is at 4i + t*step bytes; those of pairs round b to bfloat16, as a
	// has been. Half as much as it reads it fetches from ahead bytes behind b on,
	// half from apart bytes behind that. Instruction sets that gain nothing by it
	// have none.
	outer     func(rows, k int, a unsafe.Pointer, step int, b unsafe.Pointer, ldb, ahead, apart int, c unsafe.Pointer, ldc, cols int, alpha float32)
	outerCols []int

	// fetch asks for bytes > 0 bytes from p on, in the second-level cache.
	fetch func(p unsafe.Pointer, bytes int)

	// grid computes c[i*ldc+j] += alpha·x[i]·w[j*ldw:] over k for i < rows ≤
	// gridRows and skip ≤ j < gridCols[rows], ldw in bytes; it reads all
	// gridCols rows of w, and fetches what lies ahead bytes behind the first.
	// x is a panel of so many rows of gridFloats(k) floats, where panel has
	// put each of them. A row of x and one of w are one sum, whatever rows
	// and skip are. Instruction sets that gain nothing by it have none; those
	// of pairs are for bfloat16.
	grid      func(rows, k int, x, w unsafe.Pointer, elem Elem, ldw int, c unsafe.Pointer, ldc, skip, ahead int, alpha float32)
	panel     func(dst unsafe.Pointer, row, rows int, x unsafe.Pointer, k int, elem Elem)
	gridRows  int
	gridCols  []int
	gridMost  int // rows of A that a call of them has at most
	gridShort int // longest k of a pair of several rows that direct multiplies beside a grid
	gridPanel int // rows of a panel at most where one does not hold all

	// fetchesLate is for processors that by themselves fetch too little of what one
	// row is multiplied with: a Xeon of 2024 reads its third-level cache 1.1 to 2
	// times as fast with a grid, which asks for it.
	fetchesLate bool

	// block computes c[i*ldc+j] += alpha·x[i*ldx:]·w[j] over k for i <
	// blockRows[cols] and j < cols, where that is not 0, float32 all, and fetches
	// as much as it reads of x, from ahead bytes behind x on. Word t of w[j] is element
	// [t/blockLanes][j][t%blockLanes] of w, zeroes beyond k; those of pairs round
	// x to bfloat16, as w has been by panel. Instruction sets that gain nothing
	// by it have none.
	block      func(cols, k int, x unsafe.Pointer, ldx int, w, c unsafe.Pointer, ldc, ahead int, alpha float32)
	blockRows  []int
	blockLanes int

	// fan computes c[i*ldc+j] += alpha·x[i*ldx:]·w[:,j] over k for i < fanRows and j
	// < cols ≤ fanCols, float32 all, and fetches as block does. Element t of column j
	// is w[t*width+j], width being what fanWidth says, with zeroes up to whole registers
	// of fanLanes, of which fanZip then puts some along k side by side where there are few
	// columns. It is faster than block where so many quarters of the lanes are in use and
	// the nearest cache has ways for its rows, which may be a power of two apart, and for w
	// beside them: for 8 rows a Xeon of 2024 has, with 12, Zen 4 with 8 has not; for 6 Zen 3
	// has, with 8. Other instruction sets have none.
	fan                        func(cols, k int, x unsafe.Pointer, ldx int, w, c unsafe.Pointer, ldc, ahead int, alpha float32)
	fanZip                     func(w unsafe.Pointer, cols, k int)
	fanRows, fanCols, fanLanes int
	fanQuarters                int
}

// inTiles reports whether products are those of AMX, of tiles of bfloat16 as they are.
func (k *kernels) inTiles() bool { return k.turned != nil && k.pieces == 0 }

// kcRank is what a kc is longer than a power of two, so that the k axis of a layer,
// often such a power, is not divided once more for the rank of an adapter.
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

// stretch divides a k axis of so many words evenly into stretches of at most kc.
func (k *kernels) stretch(depth int) int {
	run := max(1, k.run)
	return ceil(stretchOf(depth, k.kc), run) * run
}

// panelFloats is what a row of a panel of A takes for so many words along k.
func (k *kernels) panelFloats(words int) int { return words * max(1, k.pieces) }

// apart reports whether B of a pair is taken apart.
func (k *kernels) apart(p *Pair) bool {
	return k.pieces > 0 && (p.B.Elem != BF16 || p.FilterB != nil)
}

// columnFloats is what a column of B of a pair takes for so many words along k.
func (k *kernels) columnFloats(p *Pair, words int) int {
	if k.apart(p) {
		return words * k.pieces
	}
	return words
}

// gridFloats is the length of a row of k elements in a panel for grid.
func (k *kernels) gridFloats(elements int) int { return ceil(elements, 32) * 32 / k.pairSize }

// gridMostCols is the most columns of a grid.
const gridMostCols = 6

// packSlack is what pack may overwrite behind its destination: a full vector
// store of which one element counts.
const packSlack = 15

// at is p moved by n bytes.
func at(p unsafe.Pointer, n int) unsafe.Pointer { return unsafe.Add(p, n) }

// floats is the address of s[i].
func floats(s []float32, i int) unsafe.Pointer { return unsafe.Pointer(&s[i]) }
