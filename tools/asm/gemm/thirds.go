package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// thirds is the number of 8-bit pieces of the significand of a float32, each a bfloat16, whose sum is the float32.
// Products of these pieces are exact in float32, so tiles can multiply without rounding the operands.
const thirds = 3

// thirdKernels emits the kernels that split floats.
func thirdKernels() {
	s := newSplitter()
	for _, kind := range []struct {
		name, doc string
		parter    func() *parter
	}{
		{"Thirds", "It tells whether all are finite.", s.careful},
		{"Finite", "All are finite and will be multiplied with what is, or it tells that they are not.", s.finite},
	} {
		s.packRows("rows"+kind.name, kind.doc, kind.parter)
		s.packAcross("across"+kind.name, kind.doc, kind.parter)
	}
}

// splitter holds the constants for splitting floats, in memory because no registers are left for them.
type splitter struct {
	sign, rest, top, least, quiet Mem
	odds                          Mem // 1, 3, 5 …: the upper halves of two registers
}

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

// parter splits floats in two registers. It uses Z2 to Z7 for the results, Z26 to Z28, K4 and K5.
type parter struct {
	// take returns pairs of registers whose upper halves are the parts of x, largest first.
	take func(x []reg.VecPhysical) [thirds][]reg.VecPhysical

	// sums detect values that are not finite: an infinity minus its first part is NaN, and so is any sum with it.
	sums []reg.VecPhysical
}

func newParter() *parter {
	p := &parter{sums: []reg.VecPhysical{reg.Z24, reg.Z25}}
	for _, z := range p.sums {
		zero(z)
	}
	return p
}

// add accumulates the remainder of register i of x.
func (p *parter) add(i int, left reg.VecPhysical) { VADDPS(left, p.sums[i], p.sums[i]) }

// tell returns whether all floats were finite.
func (p *parter) tell() {
	const ordered = 7
	VADDPS(p.sums[1], p.sums[0], p.sums[0])
	VCMPPS(U8(ordered), p.sums[0], p.sums[0], reg.K1)
	KORTESTW(reg.K1, reg.K1)
	SETCS(reg.AL)
	Store(reg.AL, ReturnIndex(0))
}

// careful splits floats that may be infinite or NaN, or are multiplied by such. All parts have the sign of the whole.
// Unless the whole is 0, parts that are zero, or flushed to zero by tiles, are replaced by the least normal number. The
// product with an infinity is then an infinity instead of NaN.
func (s *splitter) careful() *parter {
	const unordered = 3
	p := newParter()
	parts := [thirds][]reg.VecPhysical{{reg.Z2, reg.Z3}, {reg.Z4, reg.Z5}, {reg.Z6, reg.Z7}}
	signs, rest, piece, some, nan := reg.Z28, reg.Z27, reg.Z26, reg.K4, reg.K5
	p.take = func(x []reg.VecPhysical) [thirds][]reg.VecPhysical {
		for j, z := range x {
			VPTESTMD_BCST(s.rest, z, some)
			VCMPPS(U8(unordered), z, z, nan)
			VPANDD_BCST(s.sign, z, signs)
			VPANDD_BCST(s.rest, z, rest)
			for i := range parts {
				VPANDD_BCST(s.top, rest, piece)
				if i < len(parts)-1 {
					VSUBPS(piece, rest, rest)
				}
				VMAXPS_BCST(s.least, piece, piece) // replaces NaN too, the remainder of an infinity
				VPORD_Z(signs, piece, some, parts[i][j])
			}
			VPBROADCASTD(s.quiet, nan, parts[0][j])
			p.add(j, rest)
		}
		return parts
	}
	return p
}

// finite splits finite floats that are multiplied by finite ones, in half the time of careful. Parts that are zero stay
// zero.
func (s *splitter) finite() *parter {
	p := newParter()
	rest, least, top := []reg.VecPhysical{reg.Z2, reg.Z3}, []reg.VecPhysical{reg.Z4, reg.Z5}, reg.Z28
	VPBROADCASTD(s.top, top)
	p.take = func(x []reg.VecPhysical) [thirds][]reg.VecPhysical {
		for i, z := range x {
			VPANDD(top, z, rest[i])
			VSUBPS(rest[i], z, rest[i])
			VPANDD(top, rest[i], least[i])
			VSUBPS(least[i], rest[i], least[i])
			p.add(i, least[i])
		}
		return [thirds][]reg.VecPhysical{x, rest, least}
	}
	return p
}

// packRows emits packRows for panels of thirds.
func (s *splitter) packRows(name, doc string, parter func() *parter) {
	text(name,
		"func(dst *float32, part, step int, src *byte, lane, rows, k int, alpha float32) (finite bool)",
		"dst[i·64+p·part+t·step] = thirds p of the 32 elements alpha·src[i·lane+32·t·4] on, strides in bytes, i < rows, 32·t < k, rows > 0, k > 0; zeroes from k on. "+doc)
	w, part := newRowLoop(), reg.RDX
	param("part", part)
	alpha, odds := reg.Z31, reg.Z30
	a, _ := Param("alpha").Resolve()
	VBROADCASTSS(a.Addr, alpha)
	VMOVDQU64(s.odds, odds)
	p := parter()
	x := []reg.VecPhysical{reg.Z0, reg.Z1}
	w.emit(f32.size, func(masks ...reg.OpmaskPhysical) {
		w.loadRun(f32, alpha, x, masks)
		for i, z := range p.take(x) {
			VPERMT2W(z[1], odds, z[0])
			m := Mem{Base: w.to}
			if i > 0 {
				m.Index, m.Scale = part, uint8(i)
			}
			VMOVDQU64(z[0], m)
		}
	}, p.tell)
}

// packAcross emits the packing of a run of B, all pieces at once, least first: two rows become one of pairs, as in
// copyAcrossPairs.
func (s *splitter) packAcross(name, doc string, parter func() *parter) {
	v := avx512
	text(name,
		"func(dst *float32, panel int, src *byte, step, panels, k int) (finite bool)",
		sprintf("dst[p·panel+%d·(2-q)+4·(t·%d+i)] = thirds q of the pair src[4·(p·%d+i)+2t·step], src[4·(p·%d+i)+(2t+1)·step], panel and step in bytes, i < %d, p < panels, 2t < k, k even. ",
			tileBlock, v.width(), v.width(), v.width(), v.width())+doc)
	w := acrossRows(2)
	upper, low := reg.Z31, reg.Z30
	VPBROADCASTD(s.top, upper)
	p := parter()
	w.panels(f32, func() {
		const choose = 0xd8 // second row where upper is set, else unchanged
		for j := range v.tileVecs {
			x := []reg.VecPhysical{reg.Z0, reg.Z1}
			VMOVUPS(Mem{Base: w.src, Disp: j * v.bytes()}, x[0])
			VMOVUPS(Mem{Base: w.src, Index: w.step, Scale: 1, Disp: j * v.bytes()}, x[1])
			for i, z := range p.take(x) {
				VPSRLD(U8(16), z[0], low)
				VPTERNLOGD(U8(choose), upper, z[1], low)
				VMOVDQU64(low, Mem{Base: w.dst, Disp: (thirds-1-i)*tileBlock + j*v.bytes()})
			}
		}
	}, v, p.tell)
}
