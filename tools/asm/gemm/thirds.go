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
	splits.packFiniteRows()
	splits.packFiniteAcross()
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
		"func(dst *float32, part, step int, src *byte, lane, rows, k int, alpha float32) (finite bool)",
		"dst[i·64+p·part+t·step] = thirds p of the 32 elements alpha·src[i·lane+32·t·4] on, strides in bytes, i < rows, 32·t < k, rows > 0, k > 0; zeroes from k on. It tells whether all are finite.")
	w, part := newRowLoop(), reg.RDX
	param("part", part)
	alpha, odds := reg.Z31, reg.Z30
	a, _ := Param("alpha").Resolve()
	VBROADCASTSS(a.Addr, alpha)
	VMOVDQU64(s.odds, odds)
	x := []reg.VecPhysical{reg.Z0, reg.Z1}
	parts := [][]reg.VecPhysical{{reg.Z2, reg.Z3, reg.Z4}, {reg.Z5, reg.Z6, reg.Z7}}
	f := newFiniteSums(reg.Z8, reg.Z9)
	w.emit(f32.size, func(masks ...reg.OpmaskPhysical) {
		w.loadRun(f32, alpha, x, masks)
		for i, z := range x {
			s.split(z, parts[i]...)
			f.add(i, s.left())
		}
		for i := range thirds {
			VPERMT2W(parts[1][i], odds, parts[0][i])
			VMOVDQU64(parts[0][i], w.part(part, i))
		}
	}, f.tell)
}

// left is what split leaves of x when all parts but the last are taken away.
func (s *splitter) left() reg.VecPhysical { return reg.Z27 }

// finiteSums finds out whether all floats are finite that are taken apart: what is left of
// an infinity without its first part is NaN, and so is any sum with it.
type finiteSums []reg.VecPhysical

func newFiniteSums(sums ...reg.VecPhysical) finiteSums {
	for _, z := range sums {
		zero(z)
	}
	return sums
}

func (f finiteSums) add(i int, left reg.VecPhysical) { VADDPS(left, f[i], f[i]) }

// tell returns it.
func (f finiteSums) tell() {
	const ordered = 7
	VADDPS(f[1], f[0], f[0])
	VCMPPS(U8(ordered), f[0], f[0], reg.K1)
	KORTESTW(reg.K1, reg.K1)
	SETCS(reg.AL)
	Store(reg.AL, ReturnIndex(0))
}

// finiteParts makes of x what is left without its first part, and without the first two. A
// part is the upper half of what is left then: of finite floats, which will be
// multiplied with such, those of nothing may stay nothing. That takes half the time of
// split.
type finiteParts struct {
	top         reg.VecPhysical
	rest, least []reg.VecPhysical
	sums        finiteSums
}

func (s *splitter) newFiniteParts(top reg.VecPhysical) *finiteParts {
	VPBROADCASTD(s.top, top)
	return &finiteParts{top, []reg.VecPhysical{reg.Z2, reg.Z3}, []reg.VecPhysical{reg.Z4, reg.Z5}, newFiniteSums(reg.Z6, reg.Z7)}
}

// take returns pairs of registers whose upper halves are the parts of x, the largest first.
func (f *finiteParts) take(x []reg.VecPhysical) [thirds][]reg.VecPhysical {
	for i, z := range x {
		VPANDD(f.top, z, f.rest[i])
		VSUBPS(f.rest[i], z, f.rest[i])
		VPANDD(f.top, f.rest[i], f.least[i])
		VSUBPS(f.least[i], f.rest[i], f.least[i])
		f.sums.add(i, f.least[i])
	}
	return [thirds][]reg.VecPhysical{x, f.rest, f.least}
}

// packFiniteRows emits packRows by finiteParts.
func (s *splitter) packFiniteRows() {
	text("rowsFinite",
		"func(dst *float32, part, step int, src *byte, lane, rows, k int, alpha float32) (finite bool)",
		"is rowsThirds for what is finite and multiplied with what is, twice as fast; of anything else it tells that it is not.")
	w, part := newRowLoop(), reg.RDX
	param("part", part)
	alpha, odds := reg.Z31, reg.Z30
	a, _ := Param("alpha").Resolve()
	VBROADCASTSS(a.Addr, alpha)
	VMOVDQU64(s.odds, odds)
	f := s.newFiniteParts(reg.Z29)
	x := []reg.VecPhysical{reg.Z0, reg.Z1}
	w.emit(f32.size, func(masks ...reg.OpmaskPhysical) {
		w.loadRun(f32, alpha, x, masks)
		for i, z := range f.take(x) {
			VPERMT2W(z[1], odds, z[0])
			VMOVDQU64(z[0], w.part(part, i))
		}
	}, f.sums.tell)
}

// packFiniteAcross emits the packing of a run of B, all pieces at once, by finiteParts:
// two rows become one of pairs, as in copyAcrossPairs.
func (s *splitter) packFiniteAcross() {
	v := avx512
	text("acrossFinite",
		"func(dst *float32, panel int, src *byte, step, panels, k int) (finite bool)",
		sprintf("dst[p·panel+%d·q+4·(t·%d+i)] = part 2-q of the pair src[4·(p·%d+i)+2t·step], src[4·(p·%d+i)+(2t+1)·step], panel and step in bytes, i < %d, p < panels, 2t < k, k even, for what is finite and multiplied with what is; of anything else it tells that it is not.",
			tileBlock, v.width(), v.width(), v.width(), v.width()))
	w := acrossRows(2)
	f := s.newFiniteParts(reg.Z31)
	low := reg.Z30
	w.panels(f32, func() {
		const upper = 0xd8 // where the last operand is set, the one before it, else the first
		for j := range v.tileVecs {
			x := []reg.VecPhysical{reg.Z0, reg.Z1}
			VMOVUPS(Mem{Base: w.src, Disp: j * v.bytes()}, x[0])
			VMOVUPS(Mem{Base: w.src, Index: w.step, Scale: 1, Disp: j * v.bytes()}, x[1])
			for i, z := range f.take(x) {
				VPSRLD(U8(16), z[0], low)
				VPTERNLOGD(U8(upper), f.top, z[1], low)
				VMOVDQU64(low, Mem{Base: w.dst, Disp: (thirds-1-i)*tileBlock + j*v.bytes()})
			}
		}
	}, v, f.sums.tell)
}
