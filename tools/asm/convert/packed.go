package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// packedFloats emits the conversions of floats that are not whole bytes. They
// lie in a stream of bits that begins at the lowest bit of the first byte.
func packedFloats(v *isa) {
	widen := func(f small, unpack func(v *isa) func(src Mem) val) {
		kernel{"widen" + f.name, "widens " + f.name + ".", f.bits, 32, false, func(v *isa) body {
			value, codes := f.value(v), unpack(v)
			return func(dst, src Mem) { v.put(value(codes(src)), dst) }
		}}.emit(v)
	}
	narrow := func(f small, pack func(v *isa) func(codes reg.VecVirtual, dst Mem)) {
		kernel{"narrow" + f.name, "rounds to " + f.name + ".", 32, f.bits, false, func(v *isa) body {
			code, store := f.narrow(v), pack(v)
			return func(dst, src Mem) { store(v.bytesOf(code(v.lanes(src))), dst) }
		}}.emit(v)
	}
	widen(f4, unpack4)
	narrow(f4, pack4)
	for _, f := range []small{f6E2M3, f6E3M2} {
		widen(f, unpack6)
		narrow(f, pack6)
	}
}

// unpack4 spreads 8 bytes over 16 lanes, the lower half of each first.
func unpack4(v *isa) func(src Mem) val {
	nibble := table("nibble", repeat(0x0f0f0f0f, 4)...)
	return func(src Mem) val {
		low, high, bytes := XMM(), XMM(), XMM()
		VMOVQ(src, low)
		VPSRLQ(U8(4), low, high)
		VPUNPCKLBW(high, low, bytes)
		VANDPS(nibble, bytes, bytes)
		return v.lanesOf(bytes)
	}
}

// lanesOf are 16 bytes, each widened to a lane.
func (v *isa) lanesOf(bytes reg.VecVirtual) val {
	x := v.regs()
	VPMOVZXBD(bytes, x[0])
	if v == avx2 {
		high := XMM()
		VPSRLDQ(U8(8), bytes, high)
		VPMOVZXBD(high, x[1])
	}
	return x
}

// pack4 is the inverse of unpack4.
func pack4(v *isa) func(codes reg.VecVirtual, dst Mem) {
	factors := table("factors4", repeat(0x10011001, 4)...)
	return func(codes reg.VecVirtual, dst Mem) {
		VPMADDUBSW(factors, codes, codes) // the first of two, and 16 times the second
		VPACKUSWB(codes, codes, codes)
		VMOVQ(codes, dst)
	}
}

// unpack6 spreads 12 bytes over 16 lanes: three bytes hold four codes.
func unpack6(v *isa) func(src Mem) val {
	var places []uint32 // of the three bytes for each lane, and none
	for lane := range uint32(16) {
		at := lane / 4 * 3
		places = append(places, 0x80000000|(at+2)<<16|(at+1)<<8|at)
	}
	bytes := table("places6", places...)
	shifts := table("shifts6", 0, 6, 12, 18, 0, 6, 12, 18, 0, 6, 12, 18, 0, 6, 12, 18)
	rest := v.word(0x3f)
	return func(src Mem) val {
		all := XMM()
		VMOVQ(src, all)
		VPINSRD(U8(2), src.Offset(8), all, all)
		x := v.regs()
		for i := range x {
			if v == avx512 {
				VSHUFI32X4(U8(0), all.AsZ(), all.AsZ(), x[i])
			} else {
				VINSERTI128(U8(1), all, all.AsY(), x[i])
			}
			VPSHUFB(bytes.Offset(i*v.bytes), x[i], x[i])
			VPSRLVD(shifts.Offset(i*v.bytes), x[i], x[i])
		}
		return v.and(x, rest)
	}
}

// pack6 is the inverse of unpack6.
func pack6(v *isa) func(codes reg.VecVirtual, dst Mem) {
	pairs := table("pairs6", repeat(0x40014001, 4)...)
	fours := table("fours6", repeat(0x10000001, 4)...)
	places := table("packed6", 0x04020100, 0x09080605, 0x0e0d0c0a, 0x80808080)
	return func(codes reg.VecVirtual, dst Mem) {
		VPMADDUBSW(pairs, codes, codes) // the first of two, and 64 times the second
		VPMADDWD(fours, codes, codes)   // the first pair, and 4096 times the second
		VPSHUFB(places, codes, codes)
		VMOVQ(codes, dst)
		VPEXTRD(U8(2), codes, dst.Offset(8))
	}
}

func repeat(word uint32, n int) []uint32 {
	words := make([]uint32, n)
	for i := range words {
		words[i] = word
	}
	return words
}
