package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// quantBlock is the number of elements in a block of quantized weights.
const quantBlock = 64

// blocks is a type of quantized weights: codes of 64 elements, followed by their scale.
type blocks struct {
	name  string
	codes int // bytes of codes
}

var (
	q8 = blocks{"Q8", quantBlock}
	q4 = blocks{"Q4", quantBlock / 2} // 4-bit codes with a table of values
)

func (b blocks) bytes() int { return b.codes + 4 }

// blocksAhead is the prefetch distance of dotBlocks in bytes, into the second-level cache. Widening takes so many
// instructions that the processor does not look far ahead by itself. Every line must be prefetched (blocks of 68 bytes
// skip one occasionally, so two per block): a single missing line costs as much as a whole row (Zen 4).
const blocksAhead = 8 << 10

// table loads the values of 4-bit codes into registers. AVX2, which can look up sixteen entries only by byte, gets a
// register of first bytes, one of second bytes and so on.
func (b blocks) table(v *vector) []reg.VecPhysical {
	if b == q8 {
		return nil
	}
	param("code", reg.RAX)
	if v == avx512 {
		t := v.r[len(v.r)-1:]
		VMOVUPS(Mem{Base: reg.RAX}, t[0])
		return t
	}
	t := v.r[len(v.r)-4:]
	for i, z := range t {
		VBROADCASTI128(Mem{Base: reg.RAX, Disp: 16 * i}, z)
	}
	return t
}

// code returns the parameter declaration of the table for v.
func (b blocks) code(v *vector) string {
	switch {
	case b == q8:
		return ""
	case v == avx2:
		return " code[·], whose first bytes come first, then the second ones,"
	}
	return " code[·]"
}

// temporaries returns the number of registers that each uses.
func (b blocks) temporaries(v *vector) int {
	switch {
	case v == avx512:
		return 8
	case b == q4:
		return 6
	}
	return 4
}

// each emits the widening of the block at base, one register at a time. It calls use with the index of the first
// element and the codes as floats in w. It uses tmp.
func (b blocks) each(v *vector, base reg.GPPhysical, table, tmp []reg.VecPhysical, use func(element int, w reg.VecPhysical)) {
	if b == q8 {
		for i := 0; i < quantBlock; i += v.lanes {
			w := tmp[i/v.lanes%len(tmp)]
			VPMOVSXBD(Mem{Base: base, Disp: i}, w)
			VCVTDQ2PS(w, w)
			use(i, w)
		}
		return
	}
	if v == avx2 {
		b.eachByBytes(v, base, table, tmp, use)
		return
	}
	const half = quantBlock / 2
	for i := 0; i < half; i += v.lanes { // only the four lowest bits of an index are used
		low, high := tmp[2*(i/v.lanes)%len(tmp)], tmp[(2*(i/v.lanes)+1)%len(tmp)]
		VPMOVZXBD(Mem{Base: base, Disp: i}, low)
		VPSRLD(U8(4), low, high)
		VPERMPS(table[0], low, low)
		use(i, low)
		VPERMPS(table[0], high, high)
		use(half+i, high)
	}
}

// eachByBytes emits each for 4-bit codes with AVX2: for 32 codes at a time, the bytes of the floats are looked up one
// after another and interleaved. This takes three shuffles for eight floats; selecting between halves of the table
// takes twice as many.
func (b blocks) eachByBytes(v *vector, base reg.GPPhysical, table, tmp []reg.VecPhysical, use func(element int, w reg.VecPhysical)) {
	codes, index, x, y, z, w := tmp[0], tmp[1], tmp[2], tmp[3], tmp[4], tmp[5]
	VMOVDQU(v.spreadCodes, codes)
	VPERMD(Mem{Base: base}, codes, codes) // interleaving the lower halves then uses every other four codes
	for first := 0; first < quantBlock; first += quantBlock / 2 {
		if first > 0 {
			VPSRLW(U8(4), codes, codes)
		}
		VPAND(v.nibbles, codes, index)
		VPSHUFB(index, table[0], x)
		VPSHUFB(index, table[1], y)
		VPUNPCKLBW(y, x, z)
		VPUNPCKHBW(y, x, x)
		VPSHUFB(index, table[2], y)
		VPSHUFB(index, table[3], w)
		VPUNPCKLBW(w, y, index)
		VPUNPCKHBW(w, y, y)
		for i, words := range []struct{ low, high reg.VecPhysical }{{z, index}, {x, y}} {
			VPUNPCKLWD(words.high, words.low, w)
			use(first+2*i*v.lanes, w)
			VPUNPCKHWD(words.high, words.low, w)
			use(first+(2*i+1)*v.lanes, w)
		}
	}
}

// multiply emits the products of the block at base with rows of x, with row i at x(i, 0). The sum over the block goes
// to parts[i]; times the scale of the block it is added to sums[i]. It uses tmp.
func (b blocks) multiply(v *vector, base reg.GPPhysical, table, tmp []reg.VecPhysical, x func(i, disp int) Mem, parts, sums []reg.VecPhysical) {
	first := true
	b.each(v, base, table, tmp, func(e int, w reg.VecPhysical) {
		for i, part := range parts {
			if first {
				VMULPS(x(i, 4*e), w, part)
			} else {
				VFMADD231PS(x(i, 4*e), w, part)
			}
		}
		first = false
	})
	scale := tmp[0]
	VBROADCASTSS(Mem{Base: base, Disp: b.codes}, scale)
	for i, part := range parts {
		VFMADD231PS(part, scale, sums[i])
	}
}

// unblock emits the widening of consecutive blocks.
func unblock(v *vector, b blocks) {
	signature := "func(dst *float32, src *byte, blocks int)"
	if b == q4 {
		signature = "func(dst *float32, src *byte, blocks int, code *float32)"
	}
	text(sprintf("unblock%s%s", v.name, b.name), signature,
		sprintf("dst[i] = scale ·%s of the elements of blocks > 0 blocks of %d bytes.", b.code(v), b.bytes()))
	table := b.table(v)
	param("dst", reg.RDI)
	param("src", reg.RSI)
	param("blocks", reg.RCX)
	align()
	Label("loop")
	scale := v.r[0]
	VBROADCASTSS(Mem{Base: reg.RSI, Disp: b.codes}, scale)
	b.each(v, reg.RSI, table, v.r[1:9], func(i int, w reg.VecPhysical) {
		VMULPS(w, scale, w)
		VMOVUPS(w, Mem{Base: reg.RDI, Disp: 4 * i})
	})
	ADDQ(I32(int32(b.bytes())), reg.RSI)
	ADDQ(I32(4*quantBlock), reg.RDI)
	DECQ(reg.RCX)
	JNZ(LabelRef("loop"))
	VZEROUPPER()
	RET()
}

// dotBlocks emits the products of rows of x with n rows of quantized w, each read once and sequentially. The sum over a
// block is multiplied by its scale.
func dotBlocks(v *vector, rows int, b blocks) {
	signature := "func(k int, x *float32, ldx int, w *byte, ldw, n int, out *float32, ldo int)"
	if b == q4 {
		signature = "func(k int, x *float32, ldx int, w *byte, ldw, n int, out *float32, ldo int, code *float32)"
	}
	text(sprintf("dot%s%sx%d", v.name, b.name, rows), signature,
		sprintf("out[i·ldo+4j] = x[i·ldx:]·w[j·ldw:], strides in bytes, i < %d, j < n; k > 0 in blocks.", rows))
	table := b.table(v)
	param("x", reg.RSI)
	param("ldx", reg.R8)
	param("w", reg.RDX)
	param("ldw", reg.R9)
	param("n", reg.R10)
	param("out", reg.RDI)
	param("ldo", reg.R11)
	LEAQ(Mem{Base: reg.R8, Index: reg.R8, Scale: 2}, reg.R12) // 3·ldx
	LEAQ(Mem{Base: reg.R11, Index: reg.R11, Scale: 2}, reg.R13)

	sum := func(i int) reg.VecPhysical { return v.r[i] }
	part := func(i int) reg.VecPhysical { return v.r[rows+i] }
	tmp := v.r[2*rows:][:b.temporaries(v)]
	row := func(base, step, step3 reg.GPPhysical, i, disp int) Mem {
		return []Mem{
			{Base: base, Disp: disp}, {Base: base, Index: step, Scale: 1, Disp: disp},
			{Base: base, Index: step, Scale: 2, Disp: disp}, {Base: base, Index: step3, Scale: 1, Disp: disp},
		}[i]
	}
	Label("row")
	param("k", reg.RCX)
	MOVQ(reg.RSI, reg.RAX)
	MOVQ(reg.RDX, reg.RBX)
	for i := range rows {
		zero(sum(i))
	}
	align()
	Label("loop")
	PREFETCHT1(Mem{Base: reg.RBX, Disp: blocksAhead})
	if b.bytes() > 64 {
		PREFETCHT1(Mem{Base: reg.RBX, Disp: blocksAhead + b.bytes() - 1})
	}
	b.multiply(v, reg.RBX, table, tmp, func(i, disp int) Mem { return row(reg.RAX, reg.R8, reg.R12, i, disp) }, v.r[rows:2*rows], v.r[:rows])
	ADDQ(I32(4*quantBlock), reg.RAX)
	ADDQ(I32(int32(b.bytes())), reg.RBX)
	DECQ(reg.RCX)
	JNZ(LabelRef("loop"))
	for i := range rows {
		across(sum(i), part(i))
		MOVSS(sum(i).AsX(), row(reg.RDI, reg.R11, reg.R13, i, 0))
	}
	ADDQ(I32(4), reg.RDI)
	ADDQ(reg.R9, reg.RDX)
	DECQ(reg.R10)
	JNZ(LabelRef("row"))
	VZEROUPPER()
	RET()
}

// deepRows is the number of rows of w in deepBlocks.
const deepRows = 4

// deepBlocks emits the products of dotBlocks for one row of x, with a few rows of w at a time: a long row of x does not
// stay in the first-level cache and is read once for all of them. They are more streams than the hardware prefetcher
// follows, so the kernel prefetches in memory order, one group of rows ahead.
func deepBlocks(v *vector, b blocks) {
	signature := "func(k int, x *float32, w *byte, ldw, n int, out *float32)"
	if b == q4 {
		signature = "func(k int, x *float32, w *byte, ldw, n int, out *float32, code *float32)"
	}
	text(sprintf("deep%s%s", v.name, b.name), signature,
		sprintf("out[j] = x·w[j·ldw:], ldw in bytes, j < n, a multiple of %d; k > 0 in blocks.", deepRows))
	table := b.table(v)
	param("x", reg.RSI)
	param("w", reg.RDX)
	param("ldw", reg.R9)
	param("n", reg.R10)
	param("out", reg.RDI)
	w := []reg.GPPhysical{reg.RBX, reg.R11, reg.R12, reg.R13}
	ahead := reg.R8
	sums, tmp := v.r[:deepRows], v.r[deepRows+1:][:b.temporaries(v)]
	Label("rows")
	param("k", reg.RCX)
	MOVQ(reg.RSI, reg.RAX)
	for j, row := range w {
		if j == 0 {
			MOVQ(reg.RDX, row)
		} else {
			LEAQ(Mem{Base: w[j-1], Index: reg.R9, Scale: 1}, row)
		}
		zero(sums[j])
	}
	LEAQ(Mem{Base: reg.RDX, Index: reg.R9, Scale: deepRows}, reg.RDX)
	MOVQ(reg.RDX, ahead)
	align()
	Label("loop")
	for i := 0; i < deepRows*b.bytes()+63; i += 64 {
		PREFETCHT1(Mem{Base: ahead, Disp: i})
	}
	ADDQ(I32(int32(deepRows*b.bytes())), ahead)
	for j, row := range w {
		b.multiply(v, row, table, tmp, func(_, disp int) Mem { return Mem{Base: reg.RAX, Disp: disp} }, v.r[deepRows:deepRows+1], sums[j:j+1])
		ADDQ(I32(int32(b.bytes())), row)
	}
	ADDQ(I32(4*quantBlock), reg.RAX)
	DECQ(reg.RCX)
	JNZ(LabelRef("loop"))
	for j := range w {
		across(sums[j], v.r[deepRows])
		MOVSS(sums[j].AsX(), Mem{Base: reg.RDI, Disp: 4 * j})
	}
	ADDQ(I32(4*deepRows), reg.RDI)
	SUBQ(I32(deepRows), reg.R10)
	JG(LabelRef("rows"))
	VZEROUPPER()
	RET()
}
