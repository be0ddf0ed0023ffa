package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// thirds is how many pieces of eight bits the significand of a float32 has: a
// bfloat16 each, whose sum is the float32. Products of these pieces are exact in
// float32, so that tiles can multiply what is not rounded.
const thirds = 3

// thirdKernels emits what takes floats apart.
func thirdKernels() {
	newSplitter().packRows()
	pieceConstants = newPieceBits()
	for _, e := range thirdsOf {
		transposePairs(e, false)
		copyAcrossPairs(e)
		copyPairs(e, avx512.tileVecs)
	}
}

// thirdsOf are float32 of which one piece is loaded, the largest first.
var thirdsOf = [thirds]elem{{"Third0", f32.size, 1}, {"Third1", f32.size, 2}, {"Third2", f32.size, 3}}

// pieceBits are constants that take floats apart, wherever no registers are left
// for them.
type pieceBits struct{ sign, rest, top, least, quiet Mem }

var pieceConstants *pieceBits

func newPieceBits() *pieceBits {
	g := GLOBL("pieceBits", 8|16)
	words := []uint32{1 << 31, 1<<31 - 1, 0xffff0000, 1 << 23, 0x7fc00000}
	at := make([]Mem, len(words))
	for i, w := range words {
		DATA(4*i, U32(w))
		at[i] = g.Offset(4 * i)
	}
	return &pieceBits{at[0], at[1], at[2], at[3], at[4]}
}

// take makes x its third number part, as split does. It uses Z27, Z28, K4 and K5.
func (b *pieceBits) take(x reg.VecPhysical, part int) {
	const unordered = 3
	signs, rest, some, nan := reg.Z28, reg.Z27, reg.K4, reg.K5
	VPTESTMD_BCST(b.rest, x, some)
	if part == 0 {
		VCMPPS(U8(unordered), x, x, nan)
	}
	VPANDD_BCST(b.sign, x, signs)
	VPANDD_BCST(b.rest, x, rest)
	for i := range part + 1 {
		VPANDD_BCST(b.top, rest, x)
		if i < part {
			VSUBPS(x, rest, rest)
		}
	}
	VMAXPS_BCST(b.least, x, x)
	VPORD_Z(signs, x, some, x)
	if part == 0 {
		VPBROADCASTD(b.quiet, nan, x)
	}
}

// splitter names the registers of what takes 16 floats apart.
type splitter struct {
	odds Mem // constant 1, 3, 5 …: the upper halves of two registers

	sign, top, least, quiet, none reg.VecPhysical // constants
	signs, rest                   reg.VecPhysical
	some, nan                     reg.OpmaskPhysical
}

func newSplitter() *splitter {
	s := &splitter{sign: reg.Z31, top: reg.Z30, least: reg.Z29, quiet: reg.Z28, none: reg.Z27,
		signs: reg.Z26, rest: reg.Z25, some: reg.K4, nan: reg.K5}
	s.odds = GLOBL("upperWords512", 8|16)
	for i := range 16 {
		DATA(4*i, U32(uint32(4*i+1|(4*i+3)<<16)))
	}
	return s
}

// constants loads them.
func (s *splitter) constants() {
	for _, c := range []struct {
		z    reg.VecPhysical
		bits uint32
	}{{s.sign, 1 << 31}, {s.top, 0xffff0000}, {s.least, 1 << 23}, {s.quiet, 0x7fc00000}} {
		MOVL(U32(c.bits), reg.EAX)
		VPBROADCASTD(reg.EAX, c.z)
	}
	zero(s.none)
}

// split makes the parts of x, the largest first, all of the sign of x. Those that
// would be nothing, and those that tiles take for nothing, are the least normal
// number, unless x is 0: its product with an infinity is an infinity then, not NaN.
func (s *splitter) split(x reg.VecPhysical, parts []reg.VecPhysical) {
	const unequal, unordered = 4, 3
	VCMPPS(U8(unequal), s.none, x, s.some)
	VCMPPS(U8(unordered), x, x, s.nan)
	VPANDD(s.sign, x, s.signs)
	VPANDND(x, s.sign, s.rest)
	for i, z := range parts {
		VPANDD(s.top, s.rest, z)
		if i < len(parts)-1 {
			VSUBPS(z, s.rest, s.rest)
		}
		VMAXPS(s.least, z, z) // and of NaN, what is left of an infinity
		VPORD_Z(s.signs, z, s.some, z)
		if i == 0 {
			VMOVAPS(s.quiet, s.nan, z)
		}
	}
}

// packRows emits packRows for panels of thirds.
func (s *splitter) packRows() {
	text("rowsThirds",
		"func(dst *float32, part, step int, src *byte, lane, rows, k int, alpha float32)",
		"dst[i·64+p·part+t·step] = thirds p of the 32 elements alpha·src[i·lane+32·t·4] on, strides in bytes, i < rows, 32·t < k, rows > 0, k > 0; zeroes from k on.")
	w, part := newRowLoop(), reg.RDX
	param("part", part)
	alpha, odds := reg.Z24, reg.Z23
	s.constants()
	a, _ := Param("alpha").Resolve()
	VBROADCASTSS(a.Addr, alpha)
	VMOVDQU64(s.odds, odds)
	x := []reg.VecPhysical{reg.Z0, reg.Z1}
	parts := [][]reg.VecPhysical{{reg.Z2, reg.Z3, reg.Z4}, {reg.Z5, reg.Z6, reg.Z7}}
	w.emit(f32.size, func(masks ...reg.OpmaskPhysical) {
		w.loadRun(f32, alpha, x, masks)
		for i, z := range x {
			s.split(z, parts[i])
		}
		for i := range thirds {
			VPERMT2W(parts[1][i], odds, parts[0][i])
			m := Mem{Base: w.to}
			if i > 0 {
				m.Index, m.Scale = part, uint8(i)
			}
			VMOVDQU64(parts[0][i], m)
		}
	})
}
