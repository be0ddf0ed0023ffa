package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// These are kernels for machines with AMX, which has registers of 16 rows of 64 bytes. One instruction multiplies 16
// rows of 16 words of A, pairs of bfloat16, by 16 words of 16 columns of B, the work of 256 VDPBF16PS.
//
// A panel of B has the layout of other pairs, [k][32] words: a register loads every second half row of it. A panel of A
// is [k/16][rows][16] words.
const (
	tileRows  = 16 // per register
	tileBytes = 64 // per row of a register: 16 words
)

// Registers of a tile: sums of two by two, A and B.
const (
	tileSums = 0 // and 1, 2, 3: of rows 0 to 15 with columns 0 to 15 and 16 to 31, of rows 16 to 31
	tileA    = 4 // and 5
	tileB    = 6 // and 7
)

// vex emits an AMX instruction, which avo and Go's assembler lack: VEX.128.pp.0F38.W0 op. with is the register in
// VEX.vvvv, or 0.
func vex(pp, op, with byte, modrm ...byte) { vexOf(0xe2, pp, op, with, modrm...) }

// vexOf emits an AMX instruction with the high bits of the address registers; see vex.
func vexOf(high, pp, op, with byte, modrm ...byte) {
	encode(append([]byte{0xc4, high, ^with&15<<3 | pp, op}, modrm...)...)
}

// Prefixes of VEX.
const (
	vexNone = iota
	vex66
	vexF3
	vexF2
)

// tileConfig loads the shapes of all registers from the address in RAX (LDTILECFG).
func tileConfig() { vex(vexNone, 0x49, 0, 0x00) }

// tileRelease releases the registers (TILERELEASE), which makes context switches faster.
func tileRelease() { vex(vexNone, 0x49, 0, 0xc0) }

// tileZero clears a register (TILEZERO).
func tileZero(t byte) { vex(vexF2, 0x49, 0, 0xc0|t<<3) }

// tileMove emits TILELOADD, TILELOADDT1 or TILESTORED of a register at base+disp with a row stride of step bytes.
func tileMove(pp, t byte, base, step reg.GPPhysical, disp byte) {
	b, x := byte(base.PhysicalIndex()), byte(step.PhysicalIndex())
	vexOf(0x82|inverted(x, 3)<<6|inverted(b, 3)<<5, pp, 0x4b, 0, 0x44|t<<3, x&7<<3|b&7, disp)
}

// tileLoadOnce loads a register with data that is not reused while it is in the first-level cache (TILELOADDT1).
func tileLoadOnce(t byte, base, step reg.GPPhysical, disp byte) { tileMove(vex66, t, base, step, disp) }

func tileLoad(t byte, base, step reg.GPPhysical, disp byte)  { tileMove(vexF2, t, base, step, disp) }
func tileStore(t byte, base, step reg.GPPhysical, disp byte) { tileMove(vexF3, t, base, step, disp) }

// tileDot adds the products of the pairs of a's rows and b's columns to sum (TDPBF16PS).
func tileDot(a, b, sum byte) { vex(vexF3, 0x5c, b, 0xc0|sum<<3|a) }

// amx emits the kernels of the AMX file.
func amx() {
	avx512.zips()
	for high := 1; high <= 2; high++ {
		tilesAMX(high)
		piecesAMX(high)
	}
	for wide := 1; wide <= 2; wide++ {
		turnedAMX("Whole", wholeWords, wide)
		turnedAMX("Thirds", thirdsOfB, wide)
		turnedAMX("Sixths", thirdsOfBoth, wide)
	}
	thirdKernels()
	peakAMX()
	mergeTile()
	vendor()
	for _, e := range []elem{f32, f16, bf16} {
		packRows(e, false)
	}
	packRows(bf16, true)
	for _, e := range []elem{f32, f16, bf16} {
		packColumns(e)
	}
}

// peakAMX emits a loop that only the multiplier limits.
func peakAMX() {
	text("peakAMX", "func(config *byte, turns int)",
		"multiplies four pairs of whole registers of zeroes, turns times, turns > 0.")
	param("config", reg.RAX)
	param("turns", reg.RCX)
	tileConfig()
	for t := range byte(8) {
		tileZero(t)
	}
	align()
	Label("loop")
	for i := range byte(4) {
		tileDot(tileA+i/2, tileB+i%2, tileSums+i)
	}
	DECQ(reg.RCX)
	JNZ(LabelRef("loop"))
	tileRelease()
	RET()
}

// mergeTile emits the final step of tiles at an edge or with a bias, after tileAMX: C[rows, cols] = (C if add) + bias +
// src.
func mergeTile() {
	text("mergeTile", "func(rows int, src, c *float32, ldc, cols int, add bool, bias *float32)",
		"C[rows,cols] = (C if add) + bias + src[rows,32], rows > 0; ldc in bytes, bias nil for none.")
	rows, src, c, ldc, cols, bias := reg.RCX, reg.RSI, reg.RDI, reg.R8, reg.R9, reg.R10
	masks := []reg.OpmaskPhysical{reg.K1, reg.K2}
	param("rows", rows)
	param("src", src)
	param("c", c)
	param("ldc", ldc)
	param("cols", cols)
	param("bias", bias)
	mask512(cols, reg.RBX, masks...)
	sum, more := []reg.VecPhysical{reg.Z0, reg.Z1}, []reg.VecPhysical{reg.Z2, reg.Z3}
	for j := range 2 {
		zero(more[j])
	}
	TESTQ(bias, bias)
	JZ(LabelRef("begin"))
	for j := range 2 {
		VMOVUPS_Z(Mem{Base: bias, Disp: j * tileBytes}, masks[j], more[j])
	}
	Label("begin")
	Load(Param("add"), reg.RAX)
	Label("loop")
	for j := range 2 {
		VADDPS(Mem{Base: src, Disp: j * tileBytes}, more[j], sum[j])
	}
	TESTB(U8(1), reg.AL)
	JZ(LabelRef("store"))
	for j := range 2 {
		VADDPS(Mem{Base: c, Disp: j * tileBytes}, sum[j], masks[j], sum[j])
	}
	Label("store")
	for j := range 2 {
		VMOVUPS(sum[j], masks[j], Mem{Base: c, Disp: j * tileBytes})
	}
	ADDQ(I32(2*tileBytes), src)
	ADDQ(ldc, c)
	DECQ(rows)
	JNZ(LabelRef("loop"))
	VZEROUPPER()
	RET()
}

// rowLoop holds the registers of a loop that packs rows into a panel of A, from src to dst. A run of 16 words of each
// row is written every step bytes, followed by the next row. masks cover the remainder: of the first 16 floats, of the
// next 16, and of words.
type rowLoop struct {
	dst, step, src, lane, rows, k reg.GPPhysical
	from, to                      reg.GPPhysical // a run
	masks                         []reg.OpmaskPhysical
}

// newRowLoop returns a loop with the parameters loaded.
func newRowLoop() *rowLoop {
	w := &rowLoop{dst: reg.RDI, step: reg.R8, src: reg.RSI, lane: reg.R9, rows: reg.R10, k: reg.RCX,
		from: reg.RAX, to: reg.RBX, masks: []reg.OpmaskPhysical{reg.K1, reg.K2, reg.K3}}
	param("dst", w.dst)
	param("step", w.step)
	param("src", w.src)
	param("lane", w.lane)
	param("rows", w.rows)
	param("k", w.k)
	return w
}

// emit emits the loops around move, which packs a run, and then done, if not nil. size is the number of bytes per
// element.
func (w *rowLoop) emit(size int, move func(masks ...reg.OpmaskPhysical), done func()) {
	const run = 32
	whole, left := reg.R11, reg.R12
	MOVQ(w.k, whole)
	SHRQ(U8(5), whole)
	ANDQ(I32(run-1), w.k)
	MOVQ(I32(-1), w.from)
	BZHIQ(w.k, w.from, w.from)
	KMOVD(w.from.As32(), w.masks[2])
	KMOVW(w.from.As32(), w.masks[0])
	SHRQ(U8(16), w.from)
	KMOVW(w.from.As32(), w.masks[1])
	Label("row")
	MOVQ(w.src, w.from)
	MOVQ(w.dst, w.to)
	MOVQ(whole, left)
	TESTQ(left, left)
	JZ(LabelRef("tail"))
	Label("loop")
	move()
	ADDQ(I32(int32(run*size)), w.from)
	ADDQ(w.step, w.to)
	DECQ(left)
	JNZ(LabelRef("loop"))
	Label("tail")
	TESTQ(w.k, w.k)
	JZ(LabelRef("next"))
	move(w.masks...)
	Label("next")
	ADDQ(w.lane, w.src)
	ADDQ(I32(tileBytes), w.dst)
	DECQ(w.rows)
	JNZ(LabelRef("row"))
	if done != nil {
		done()
	}
	VZEROUPPER()
	RET()
}

// loadRun loads the 32 elements of a run, times alpha.
func (w *rowLoop) loadRun(e elem, alpha reg.VecPhysical, x []reg.VecPhysical, masks []reg.OpmaskPhysical) {
	for i, z := range x {
		m := Mem{Base: w.from, Disp: i * 16 * e.size}
		if len(masks) > 0 {
			e.load(m, z, masks[i])
		} else {
			e.load(m, z)
		}
		VMULPS(alpha, z, z)
	}
}

// packRows emits the packing of rows into a panel of A, in words of pairs rounded from alpha times the elements, with
// zeros after the last. Raw bfloat16 is copied unchanged.
func packRows(e elem, raw bool) {
	name := e.name
	if raw {
		name = "Raw"
	}
	text("rowsAMX"+name,
		"func(dst *float32, step int, src *byte, lane, rows, k int, alpha float32)",
		sprintf("dst[i·64+t·step] = the 32 elements alpha·src[i·lane+32·t·%d] on, strides in bytes, i < rows, 32·t < k, rows > 0, k > 0; zeroes from k on.", e.size))
	w := newRowLoop()
	alpha, x := reg.Z31, []reg.VecPhysical{reg.Z0, reg.Z1}
	if !raw {
		a, _ := Param("alpha").Resolve()
		VBROADCASTSS(a.Addr, alpha)
	}
	w.emit(e.size, func(masks ...reg.OpmaskPhysical) {
		switch {
		case !raw:
			w.loadRun(e, alpha, x, masks)
			narrowPairs(x[0], x[1], x[0])
		case len(masks) > 0:
			VMOVDQU16_Z(Mem{Base: w.from}, masks[2], x[0])
		default:
			VMOVDQU64(Mem{Base: w.from}, x[0])
		}
		VMOVDQU64(x[0], Mem{Base: w.to})
	}, nil)
}

// packColumns emits the packing of a transposed A into the same layout as packRows, for at most 16 rows. Squares of
// words, built as in copyPairs, are transposed in registers.
func packColumns(e elem) {
	v := avx512
	text("columnsAMX"+e.name,
		"func(dst *float32, to int, src *byte, step, rows, k int, alpha float32)",
		sprintf("dst[i·64+t·to] = the 32 elements alpha·src[%d·i+32·t·step], src[%d·i+(32·t+1)·step] …, strides in bytes, i < rows ≤ 16, 32·t < k; zeroes from k on.", e.size, e.size))
	const run = 32
	dst, to, src, step, rows, k := reg.RDI, reg.R8, reg.RSI, reg.R9, reg.R10, reg.RCX
	param("dst", dst)
	param("to", to)
	param("src", src)
	param("step", step)
	param("rows", rows)
	param("k", k)
	mask512(rows, reg.RAX, reg.K1)
	alpha, high, order := reg.Z31, reg.Z30, reg.Z29
	constants := func() { // the square overwrites them
		a, _ := Param("alpha").Resolve()
		VBROADCASTSS(a.Addr, alpha)
		VMOVDQU64(v.zip, order)
	}
	load := func(m Mem, z reg.VecPhysical) {
		fetchAhead(src, step, 0)
		e.load(m, z, reg.K1)
		VMULPS(alpha, z, z)
	}
	word := func(z reg.VecPhysical) {
		narrowPairs(z, high, z)
		VPERMW(z, order, z)
	}
	write := func(next string) {
		MOVQ(rows, reg.RAX)
		MOVQ(dst, reg.RBX)
		for _, z := range transpose16(v.r) {
			VMOVUPS(z, Mem{Base: reg.RBX})
			ADDQ(I32(tileBytes), reg.RBX)
			DECQ(reg.RAX)
			JZ(LabelRef(next))
		}
	}
	SUBQ(I32(run), k)
	JLT(LabelRef("tail"))
	Label("loop")
	constants()
	for i := range run / 2 {
		load(Mem{Base: src}, v.r[i])
		load(Mem{Base: src, Index: step, Scale: 1}, high)
		word(v.r[i])
		LEAQ(Mem{Base: src, Index: step, Scale: 2}, src)
	}
	write("next")
	Label("next")
	ADDQ(to, dst)
	SUBQ(I32(run), k)
	JGE(LabelRef("loop"))
	Label("tail")
	ADDQ(I32(run), k)
	JZ(LabelRef("done"))
	constants()
	for i := range run / 2 {
		zero(v.r[i])
	}
	for i := range run / 2 {
		odd := sprintf("odd%d", i)
		load(Mem{Base: src}, v.r[i])
		zero(high)
		DECQ(k)
		JZ(LabelRef(odd))
		load(Mem{Base: src, Index: step, Scale: 1}, high)
		DECQ(k)
		Label(odd)
		word(v.r[i])
		if i < run/2-1 {
			LEAQ(Mem{Base: src, Index: step, Scale: 2}, src)
			TESTQ(k, k)
			JZ(LabelRef("last"))
		}
	}
	Label("last")
	write("done")
	Label("done")
	VZEROUPPER()
	RET()
}

// vendor emits the query for the vendor of the processor.
func vendor() {
	text("vendor", "func() (b, d, c uint32)", "returns the name of the maker of the processor, four letters each (CPUID 0).")
	XORL(reg.EAX, reg.EAX)
	CPUID()
	Store(reg.EBX, ReturnIndex(0))
	Store(reg.EDX, ReturnIndex(1))
	Store(reg.ECX, ReturnIndex(2))
	RET()
}
