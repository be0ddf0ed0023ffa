package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// tileWalk lists the pieces of A that are multiplied with each of the consecutive blocks of B in a run.
type tileWalk struct {
	pieces int     // pieces of A
	blocks [][]int // by block of B: the pieces of A to multiply with
	fetch  int     // rows that turnedAMX prefetches per run
}

var (
	wholeWords = tileWalk{1, [][]int{{0}}, 2}

	// A is read in place, and multiplied with words of bfloat16.
	thirdsOfA = tileWalk{thirds, [][]int{{0, 1, 2}}, 0}

	// Words of bfloat16 are multiplied with B, which is read in place.
	thirdsOfB = tileWalk{1, [][]int{{0}, {0}, {0}}, 2}

	// Both are read in place. The smallest products, 24 places below the first, are omitted: together they are half of
	// the last bit of a float32. B has its smallest piece first, so that pieces of A in registers can already advance
	// to the next run.
	thirdsOfBoth = tileWalk{thirds, [][]int{{0}, {0, 1}, {1, 0, 2}}, 4}
)

// tileRegisters assigns registers of tile kernels.
type tileRegisters struct {
	a, c                           []reg.GPPhysical // one per 16 rows, which fill a tile register
	b, ldc, piece, left, next, far reg.GPPhysical
	stepA, stepB                   reg.GPPhysical
	wide                           int // number of tile registers across columns
}

const tileBlock = tileRows * 2 * tileBytes // bytes of a block of B

// newTileRegisters loads the parameters of a kernel with the given number of tile registers of rows, and two of
// columns. dst and step name the parameters for the destination of the sums.
func newTileRegisters(high int, dst, step string) *tileRegisters {
	t := &tileRegisters{a: []reg.GPPhysical{reg.RSI, reg.R11}[:high], c: []reg.GPPhysical{reg.RDI, reg.R12}[:high],
		b: reg.RDX, ldc: reg.RCX, piece: reg.R8, left: reg.R9, next: reg.R13, far: reg.RAX, stepA: reg.RBX, stepB: reg.R10, wide: 2}
	param("config", reg.RAX)
	param("b", t.b)
	param(dst, t.c[0])
	param(step, t.ldc)
	tileConfig()
	if high == 2 {
		MOVQ(t.ldc, t.c[1])
		SHLQ(U8(4), t.c[1])
		ADDQ(t.c[0], t.c[1])
	}
	MOVQ(U32(tileBytes), t.stepA)
	MOVQ(U32(2*tileBytes), t.stepB)
	return t
}

// panelOfA loads the distance of pieces in a panel of A, and the address at which prefetching starts.
func (t *tileRegisters) panelOfA() {
	param("rows", t.piece)
	SHLQ(U8(6), t.piece)
	param("a", t.a[0])
	param("ahead", t.far)
	ADDQ(t.a[0], t.far)
}

// sums calls each for every register of sums.
func (t *tileRegisters) sums(each func(sum byte, c reg.GPPhysical, disp byte)) {
	for i, c := range t.c {
		for j := range t.wide {
			each(byte(tileSums+2*i+j), c, byte(j*tileBytes))
		}
	}
}

func (t *tileRegisters) zero() {
	t.sums(func(sum byte, _ reg.GPPhysical, _ byte) { tileZero(sum) })
}

func (t *tileRegisters) store() {
	t.sums(func(sum byte, c reg.GPPhysical, disp byte) { tileStore(sum, c, t.ldc, disp) })
}

// begin loads the address of a panel of A.
func (t *tileRegisters) begin() {
	param("k", t.left)
	param("a", t.a[0])
	if len(t.a) == 2 {
		LEAQ(Mem{Base: t.a[0], Disp: tileRows * tileBytes}, t.a[1])
	}
}

// tilesAMX emits C[rows,32·tiles] = (C if add) + a·b for a panel of A and panels of B, with high registers of rows,
// tile by tile. A stays in the first-level cache while B passes; if B evicted it, a fifth of the speed would be lost.
// The kernel also prefetches data at a distance of ahead bytes after A, a little per iteration, and the lines of C of
// the next tile.
func tilesAMX(high int) {
	text(sprintf("tilesAMXx%d", high),
		"func(config *byte, rows, k int, a, b *float32, panel int, c *float32, ldc, tiles int, add bool, ahead int)",
		sprintf("C[rows,32·tiles] = (C if add) + a·b of pairs, k runs of 16 words, panels of b side by side; panel and ldc in bytes, rows from %d to %d, which config says too.", (high-1)*tileRows+1, high*tileRows))
	t := newTileRegisters(high, "c", "ldc")
	t.panelOfA()
	Label("tile")
	t.begin()
	Load(Param("add"), t.next)
	TESTQ(t.next, t.next)
	JZ(LabelRef("zero"))
	t.sums(func(sum byte, c reg.GPPhysical, disp byte) { tileLoadOnce(sum, c, t.ldc, disp) })
	JMP(LabelRef("begin"))
	Label("zero")
	t.zero()
	Label("begin")
	LEAQ(Mem{Base: t.c[0], Disp: 2 * tileBytes}, t.next)
	wholeWords.loop("loop", t, wholeWords.ahead(t, t.ldc))
	t.store()
	for _, c := range t.c {
		ADDQ(I32(2*tileBytes), c)
	}
	param("k", t.left) // distance to the next panel of B
	SHLQ(U8(11), t.left)
	SUBQ(t.left, t.b)
	Load(Param("panel"), t.left)
	ADDQ(t.left, t.b)
	Load(Param("tiles"), t.left)
	DECQ(t.left)
	Store(t.left, Param("tiles"))
	JNZ(LabelRef("tile"))
	tileRelease()
	RET()
}

// piecesAMX emits dst[rows,32] = a·b for a panel of A and one of B, with high registers of rows. A is in pieces, and so
// is B after its first words. It prefetches like tilesAMX; of C, the lines to which dst will be added.
//
// A is [k/16][pieces][rows][16] words, B [k/16][16][32] and then [apart/16][blocks][16][32].
func piecesAMX(high int) {
	text(sprintf("piecesAMXx%d", high),
		"func(config *byte, rows, k, apart int, a, b, dst *float32, step int, c *float32, ldc, ahead int)",
		sprintf("dst[rows,32] = a·b of pairs, a of three pieces for each run of 16 words, b of one for k runs and then for apart runs of three, from the least; step and ldc in bytes, rows from %d to %d, which config says too. It fetches as many rows of c.", (high-1)*tileRows+1, high*tileRows))
	t := newTileRegisters(high, "dst", "step")
	t.panelOfA()
	t.begin()
	t.zero()
	param("c", t.next)
	ldc, _ := Param("ldc").Resolve()
	for i, w := range []tileWalk{thirdsOfA, thirdsOfBoth} {
		done := sprintf("done%d", i)
		if i > 0 {
			param("apart", t.left)
		}
		TESTQ(t.left, t.left)
		JZ(LabelRef(done))
		w.loop(sprintf("loop%d", i), t, w.ahead(t, ldc.Addr))
		Label(done)
	}
	t.store()
	tileRelease()
	RET()
}

// turnedAMX emits dst[rows,16·wide] = a·b for rows from 17 to 32. With every run it prefetches some lines of the rows
// of A that are packed next.
func turnedAMX(name string, w tileWalk, wide int) {
	text(sprintf("turnedAMX%sx%d", name, wide),
		"func(config *byte, k int, a *float32, lane, piece int, b, dst *float32, step int, next uintptr, ldnext int)",
		sprintf("dst[rows,%d] = a·b of pairs, k runs of 16 words, k > 0, in pieces: %d of a, from the first, and %d of b, from the least; rows of a run of a are lane bytes apart and its pieces piece, rows of dst step; config says how many rows, from %d to %d. With every run it fetches %d lines of %d rows more from next on, ldnext bytes apart.",
			16*wide, w.pieces, len(w.blocks), tileRows+1, 2*tileRows, turnedLines, w.fetch))
	t := newTileRegisters(2, "dst", "step")
	t.wide = wide
	param("k", t.left)
	param("a", t.a[0])
	param("lane", t.stepA)
	param("piece", t.piece)
	MOVQ(t.stepA, t.a[1])
	SHLQ(U8(4), t.a[1])
	ADDQ(t.a[0], t.a[1])
	t.zero()
	param("next", t.far)
	param("ldnext", t.next)
	lines := turnedLines * w.fetch
	slots := 0
	for _, pieces := range w.blocks {
		slots += len(pieces) * len(t.a)
	}
	w.loop("loop", t, func(n int) {
		for line := n * lines / slots; line < (n+1)*lines/slots; line++ {
			PREFETCHT1(Mem{Base: t.far, Disp: line % turnedLines * tileBytes})
			if line%turnedLines == turnedLines-1 {
				ADDQ(t.next, t.far)
			}
		}
	})
	t.store()
	tileRelease()
	RET()
}

// turnedLines is the number of lines of a row that turnedAMX prefetches.
const turnedLines = 8

// loop emits the products of the remaining runs. It calls fetch after the products of every register of A, with the
// number of earlier calls in the run.
func (w tileWalk) loop(label string, t *tileRegisters, fetch func(n int)) {
	align()
	Label(label)
	w.run(t, fetch)
	DECQ(t.left)
	JNZ(LabelRef(label))
}

// ahead returns a function to call after the products with every register of A. Its calls prefetch a run of A, far
// ahead, line by line, and some rows of C, ldc bytes apart.
func (w tileWalk) ahead(t *tileRegisters, ldc Op) func(n int) {
	lines, rows := w.pieces*len(t.a), len(w.blocks)*len(t.a)
	return func(n int) {
		if n < lines {
			PREFETCHT1(Mem{Base: t.far, Disp: n * tileBytes})
		}
		if n == lines-1 {
			ADDQ(I32(int32(lines*tileBytes)), t.far)
		}
		if n < rows {
			PREFETCHT0(Mem{Base: t.next})
			PREFETCHT0(Mem{Base: t.next, Disp: tileBytes})
			ADDQ(ldc, t.next)
		}
	}
}

// run emits the products of a run, advancing a and b. It calls then after the products of every register of A, with the
// number of earlier calls in the run.
func (w tileWalk) run(t *tileRegisters, then func(n int)) {
	at, held, n := 0, -1, 0
	move := func(to int) {
		for ; at < to; at++ {
			for _, a := range t.a {
				ADDQ(t.piece, a)
			}
		}
		for ; at > to; at-- {
			for _, a := range t.a {
				SUBQ(t.piece, a)
			}
		}
	}
	for _, pieces := range w.blocks {
		for j := range t.wide {
			tileLoadOnce(byte(tileB+j), t.b, t.stepB, byte(j*tileBytes))
		}
		for _, p := range pieces {
			if p != held {
				move(p)
				for i := range t.a {
					tileLoad(byte(tileA+i), t.a[i], t.stepA, 0)
				}
				held = p
			}
			for i := range t.a {
				for j := range t.wide {
					tileDot(byte(tileA+i), byte(tileB+j), byte(tileSums+2*i+j))
				}
				then(n)
				n++
			}
		}
		ADDQ(I32(tileBlock), t.b)
	}
	move(w.pieces)
}
