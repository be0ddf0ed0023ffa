package main

import (
	"encoding/binary"

	. "github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/ir"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// These are kernels for machines that multiply bfloat16. A word of a panel is a pair of adjacent elements along k, and
// one instruction adds both products to a float32.

// evex emits a register-to-register instruction of AVX512_BF16, which avo and Go's assembler lack: EVEX.512.pp.0F38.W0
// op, without mask.
func evex(pp, op byte, z, y, x reg.VecPhysical) {
	dst, src1, src2 := byte(z.PhysicalIndex()), byte(y.PhysicalIndex()), byte(x.PhysicalIndex())
	p0 := inverted(dst, 3)<<7 | inverted(src2, 4)<<6 | inverted(src2, 3)<<5 | inverted(dst, 4)<<4 | 2
	p1 := ^src1&15<<3 | 4 | pp
	p2 := 0x40 | inverted(src1, 4)<<3
	modrm := 0xc0 | dst&7<<3 | src2&7
	encode(0x62, p0, p1, p2, op, modrm)
}

// inverted returns bit n of a register number, inverted as in the prefix.
func inverted(v, n byte) byte { return ^v >> n & 1 }

// encode emits an instruction of four to seven bytes.
func encode(bytes ...byte) {
	emit := func(opcode string, x Op) {
		Instruction(&ir.Instruction{Opcode: opcode, Operands: []Op{x}})
	}
	emit("LONG", U32(binary.LittleEndian.Uint32(bytes)))
	if bytes = bytes[4:]; len(bytes) > 1 {
		emit("WORD", U16(binary.LittleEndian.Uint16(bytes)))
		bytes = bytes[2:]
	}
	if len(bytes) > 0 {
		emit("BYTE", U8(bytes[0]))
	}
}

// dotPairs adds the products of x's and y's pairs to sum (VDPBF16PS).
func dotPairs(x, y, sum reg.VecPhysical) { evex(2, 0x52, sum, y, x) }

// dotWord adds the products of the broadcast word at disp words after RSI with the pairs of y to sum; see dotPairs.
func dotWord(disp int, y, sum reg.VecPhysical) {
	const rsi = 6
	dst, src := byte(sum.PhysicalIndex()), byte(y.PhysicalIndex())
	p0 := inverted(dst, 3)<<7 | 3<<5 | inverted(dst, 4)<<4 | 2
	p1 := ^src&15<<3 | 4 | 2
	p2 := 0x50 | inverted(src, 4)<<3
	encode(0x62, p0, p1, p2, 0x52, 0x40|dst&7<<3|rsi, byte(disp))
}

// narrowPairs rounds low and high to bfloat16 and stores them side by side (VCVTNE2PS2BF16).
func narrowPairs(low, high, dst reg.VecPhysical) { evex(3, 0x72, dst, high, low) }

// transposePairs emits transpose for panels of pairs: the pair of elements (i,2t) and (i,2t+1) goes to dst + t·width +
// 4i. Raw bfloat16 is copied unchanged; other types are multiplied by alpha and rounded.
func transposePairs(e elem, raw bool) {
	v, name := avx512, e.name
	if raw {
		name = "Raw"
	}
	text("pairs512"+name,
		"func(dst *float32, width int, src *byte, lane, rows, k int, alpha float32)",
		sprintf("dst[t·width+4i] = the pair alpha·src[i·lane+2t·%d], strides in bytes, i < %d with zeroes from rows on, 2t < k.", e.size, v.lanes))
	param("dst", reg.RDI)
	param("width", reg.R8)
	param("src", reg.RSI)
	param("lane", reg.R9)
	param("rows", reg.R10)
	param("k", reg.RCX)
	const step = 32
	alpha, high := reg.Z31, reg.Z30
	row := func(i int, masks ...reg.OpmaskPhysical) {
		fetchOn(reg.RAX)
		if raw {
			if len(masks) > 0 {
				VMOVDQU16_Z(Mem{Base: reg.RAX}, masks[2], v.r[i])
			} else {
				VMOVUPS(Mem{Base: reg.RAX}, v.r[i])
			}
			return
		}
		var low, upper []reg.OpmaskPhysical
		if len(masks) > 0 {
			low, upper = masks[:1], masks[1:2]
		}
		e.load(Mem{Base: reg.RAX}, v.r[i], low...)
		e.load(Mem{Base: reg.RAX, Disp: v.lanes * e.size}, high, upper...)
		VMULPS(alpha, v.r[i], v.r[i])
		VMULPS(alpha, high, high)
		narrowPairs(v.r[i], high, v.r[i])
	}
	read := func(suffix string, masks ...reg.OpmaskPhysical) {
		if !raw {
			a, _ := Param("alpha").Resolve()
			VBROADCASTSS(a.Addr, alpha)
		}
		MOVQ(reg.RSI, reg.RAX)
		MOVQ(reg.R10, reg.RBX)
		for i := range v.lanes {
			zero(v.r[i])
		}
		for i := range v.lanes {
			TESTQ(reg.RBX, reg.RBX)
			JZ(LabelRef("read" + suffix))
			row(i, masks...)
			ADDQ(reg.R9, reg.RAX)
			DECQ(reg.RBX)
		}
		Label("read" + suffix)
	}

	SUBQ(I32(step), reg.RCX)
	JLT(LabelRef("tail"))
	Label("loop")
	read("")
	for _, z := range transpose16(v.r) {
		VMOVUPS(z, Mem{Base: reg.RDI})
		ADDQ(reg.R8, reg.RDI)
	}
	ADDQ(I32(int32(step*e.size)), reg.RSI)
	SUBQ(I32(step), reg.RCX)
	JGE(LabelRef("loop"))
	Label("tail")
	ADDQ(I32(step), reg.RCX)
	JZ(LabelRef("done"))
	MOVQ(I32(-1), reg.RAX)
	BZHIQ(reg.RCX, reg.RAX, reg.RAX)
	KMOVD(reg.EAX, reg.K3)
	KMOVW(reg.EAX, reg.K1)
	SHRQ(U8(16), reg.RAX)
	KMOVW(reg.EAX, reg.K2)
	INCQ(reg.RCX)
	SHRQ(U8(1), reg.RCX) // remaining rows of the panel
	read("Tail", reg.K1, reg.K2, reg.K3)
	for _, z := range transpose16(v.r) {
		VMOVUPS(z, Mem{Base: reg.RDI})
		ADDQ(reg.R8, reg.RDI)
		DECQ(reg.RCX)
		JZ(LabelRef("done"))
	}
	Label("done")
	VZEROUPPER()
	RET()
}

// copyPairs emits copyLanes for panels of pairs: two rows of src become one of the panel, the last one with zeros if k
// is odd.
func copyPairs(e elem, vecs int) {
	v := avx512
	text(sprintf("zip512%sx%d", e.name, vecs),
		"func(dst *float32, width int, src *byte, step, lanes, k int, alpha float32)",
		sprintf("dst[t·width+4i] = the pair alpha·src[%d·i+2t·step], alpha·src[%d·i+(2t+1)·step], strides in bytes, i < %d with zeroes from lanes on, 2t < k.", e.size, e.size, vecs*v.lanes))
	param("dst", reg.RDI)
	param("width", reg.R8)
	param("src", reg.RSI)
	param("step", reg.R9)
	param("k", reg.RCX)
	param("lanes", reg.R10)
	masks := []reg.OpmaskPhysical{reg.K1, reg.K2}[:vecs]
	mask512(reg.R10, reg.RAX, masks...)
	alpha, order := reg.Z31, reg.Z30
	a, _ := Param("alpha").Resolve()
	VBROADCASTSS(a.Addr, alpha)
	VMOVDQU64(v.zip, order)
	pair := func(odd bool) {
		for j := range vecs {
			low, high := v.r[2*j], v.r[2*j+1]
			if !odd {
				fetchAhead(reg.RSI, reg.R9, j*v.lanes*e.size)
				fetchAhead(reg.R11, reg.R9, j*v.lanes*e.size)
			}
			e.load(Mem{Base: reg.RSI, Disp: j * v.lanes * e.size}, low, masks[j])
			VMULPS(alpha, low, low)
			if odd {
				zero(high)
			} else {
				e.load(Mem{Base: reg.RSI, Index: reg.R9, Scale: 1, Disp: j * v.lanes * e.size}, high, masks[j])
				VMULPS(alpha, high, high)
			}
			narrowPairs(low, high, low)
			VPERMW(low, order, low)
			VMOVUPS(low, Mem{Base: reg.RDI, Disp: j * v.bytes()})
		}
	}
	SUBQ(I32(2), reg.RCX)
	JLT(LabelRef("tail"))
	Label("loop")
	LEAQ(Mem{Base: reg.RSI, Index: reg.R9, Scale: 1}, reg.R11)
	pair(false)
	LEAQ(Mem{Base: reg.RSI, Index: reg.R9, Scale: 2}, reg.RSI)
	ADDQ(reg.R8, reg.RDI)
	SUBQ(I32(2), reg.RCX)
	JGE(LabelRef("loop"))
	Label("tail")
	ADDQ(I32(2), reg.RCX)
	JZ(LabelRef("done"))
	pair(true)
	Label("done")
	VZEROUPPER()
	RET()
}
