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
	splits = newSplitter()
	splits.packRows()
	for _, e := range thirdsOf {
		transposePairs(e, false)
		copyAcrossPairs(e)
		copyPairs(e, avx512.tileVecs)
	}
}

// thirdsOf are float32 of which one piece is loaded, the largest first.
var thirdsOf = [thirds]elem{{"Third0", f32.size, 1}, {"Third1", f32.size, 2}, {"Third2", f32.size, 3}}

// splitter is constants in memory, where no registers are left for them, by which
// floats are taken apart.
type splitter struct {
	sign, rest, top, least, quiet Mem
	odds                          Mem // 1, 3, 5 …: the upper halves of two registers
}

// splits is what an elem that is a piece is loaded by.
var splits *splitter

func newSplitter() *splitter {
	bits := GLOBL("pieceBits", 8|16)
	for i, w := range []uint32{1 << 31, 1<<31 - 1, 0xffff0000, 1 << 23, 0x7fc00000} {
		DATA(4*i, U32(w))
	}
	s := &splitter{bits, bits.Offset(4), bits.Offset(8), bits.Offset(12), bits.Offset(16), GLOBL("upperWords512", 8|16)}
	for i := range 16 {
		DATA(4*i, U32(uint32(4*i+1|(4*i+3)<<16)))
	}
	return s
}

// split makes the parts of x, the largest first, all of the sign of x, but for those
// without a register; x may be one of them. Those that
// would be nothing, and those that tiles take for nothing, are the least normal
// number, unless x is 0: its product with an infinity is an infinity then, not NaN.
// It uses Z26 to Z28, K4 and K5.
func (s *splitter) split(x reg.VecPhysical, parts ...reg.VecPhysical) {
	const unordered = 3
	signs, rest, piece, some, nan := reg.Z28, reg.Z27, reg.Z26, reg.K4, reg.K5
	VPTESTMD_BCST(s.rest, x, some)
	if parts[0] != nil {
		VCMPPS(U8(unordered), x, x, nan)
	}
	VPANDD_BCST(s.sign, x, signs)
	VPANDD_BCST(s.rest, x, rest)
	for i, z := range parts {
		VPANDD_BCST(s.top, rest, piece)
		if i < len(parts)-1 {
			VSUBPS(piece, rest, rest)
		}
		if z == nil {
			continue
		}
		VMAXPS_BCST(s.least, piece, piece) // and of NaN, what is left of an infinity
		VPORD_Z(signs, piece, some, z)
		if i == 0 {
			VPBROADCASTD(s.quiet, nan, z)
		}
	}
}

// take makes x one of its parts.
func (s *splitter) take(x reg.VecPhysical, part int) {
	parts := make([]reg.VecPhysical, part+1)
	parts[part] = x
	s.split(x, parts...)
}

// packRows emits packRows for panels of thirds.
func (s *splitter) packRows() {
	text("rowsThirds",
		"func(dst *float32, part, step int, src *byte, lane, rows, k int, alpha float32)",
		"dst[i·64+p·part+t·step] = thirds p of the 32 elements alpha·src[i·lane+32·t·4] on, strides in bytes, i < rows, 32·t < k, rows > 0, k > 0; zeroes from k on.")
	w, part := newRowLoop(), reg.RDX
	param("part", part)
	alpha, odds := reg.Z31, reg.Z30
	a, _ := Param("alpha").Resolve()
	VBROADCASTSS(a.Addr, alpha)
	VMOVDQU64(s.odds, odds)
	x := []reg.VecPhysical{reg.Z0, reg.Z1}
	parts := [][]reg.VecPhysical{{reg.Z2, reg.Z3, reg.Z4}, {reg.Z5, reg.Z6, reg.Z7}}
	w.emit(f32.size, func(masks ...reg.OpmaskPhysical) {
		w.loadRun(f32, alpha, x, masks)
		for i, z := range x {
			s.split(z, parts[i]...)
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
