package main

import (
	"math"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
)

// integers emits the conversions of integers and booleans. AVX2 lacks conversions of unsigned 32-bit and of 64-bit
// integers.
func integers(v *isa) {
	for _, t := range []struct {
		name   string
		widen  func(ops ...Op)
		lo, hi float64
		bits   int
		pack   [2]func(ops ...Op) // to words, to bytes
	}{
		{"U8", VPMOVZXBD, 0, math.MaxUint8, 8, [2]func(ops ...Op){VPACKUSDW, VPACKUSWB}},
		{"I8", VPMOVSXBD, math.MinInt8, math.MaxInt8, 8, [2]func(ops ...Op){VPACKSSDW, VPACKSSWB}},
		{"U16", VPMOVZXWD, 0, math.MaxUint16, 16, [2]func(ops ...Op){VPACKUSDW}},
		{"I16", VPMOVSXWD, math.MinInt16, math.MaxInt16, 16, [2]func(ops ...Op){VPACKSSDW}},
	} {
		kernel{"widen" + t.name, "converts " + t.name + ".", t.bits, 32, true, func(v *isa) body {
			return func(dst, src Mem) {
				var x val
				if t.bits == 8 {
					x = v.quarters(t.widen, src)
				} else {
					x = v.words(t.widen, src)
				}
				v.put(v.two(VCVTDQ2PS, x), dst)
			}
		}}.emit(v)
		kernel{"narrow" + t.name, "rounds to " + t.name + ".", 32, t.bits, false, func(v *isa) body {
			lo, hi := v.float(t.lo), v.float(t.hi)
			return func(dst, src Mem) {
				x := v.two(VCVTPS2DQ, v.minF(v.maxF(v.number(v.lanes(src)), lo), hi))
				if t.bits == 16 {
					v.put(v.wordsOf(t.pack[0], x), dst)
				} else {
					v.store(v.packBytes(t.pack, x), dst)
				}
			}
		}}.emit(v)
	}
	kernel{"widenBool", "converts truth values.", 8, 32, true, func(v *isa) body {
		zero, one := v.word(0), v.float(1)
		return func(dst, src Mem) {
			x := v.quarters(VPMOVZXBD, src)
			v.put(v.where(v.less(zero, x), one), dst)
		}
	}}.emit(v)
	kernel{"narrowBool", "tells what is not zero.", 32, 8, false, func(v *isa) body {
		zero, one := v.word(0), v.word(1)
		return func(dst, src Mem) {
			v.store(v.bytesOf(v.where(v.compare(unlike, v.lanes(src), zero), one)), dst)
		}
	}}.emit(v)
	kernel{"widenI32", "converts I32.", 32, 32, true, func(v *isa) body {
		return func(dst, src Mem) { v.put(v.two(VCVTDQ2PS, v.lanes(src)), dst) }
	}}.emit(v)
	kernel{"narrowI32", "rounds to I32.", 32, 32, false, func(v *isa) body {
		beyond, largest := v.float(1<<31), v.word(math.MaxInt32)
		return func(dst, src Mem) {
			x := v.number(v.lanes(src))
			v.put(v.choose(v.compare(notLess, x, beyond), largest, v.two(VCVTPS2DQ, x)), dst)
		}
	}}.emit(v)
	if v == avx512 {
		wideIntegers(v)
	}
}

// wideIntegers emits the conversions that only AVX-512 has. They return all ones for values too large for an unsigned
// type.
func wideIntegers(v *isa) {
	kernel{"widenU32", "converts U32.", 32, 32, true, func(v *isa) body {
		return func(dst, src Mem) { v.put(v.two(VCVTUDQ2PS, v.lanes(src)), dst) }
	}}.emit(v)
	kernel{"narrowU32", "rounds to U32.", 32, 32, false, func(v *isa) body {
		zero := v.word(0)
		return func(dst, src Mem) {
			v.put(v.two(VCVTPS2UDQ, v.maxF(v.number(v.lanes(src)), zero)), dst)
		}
	}}.emit(v)
	for _, t := range []struct {
		name          string
		widen, narrow func(ops ...Op)
	}{{"I64", VCVTQQ2PS, VCVTPS2QQ}, {"U64", VCVTUQQ2PS, VCVTPS2UQQ}} {
		kernel{"widen" + t.name, "converts " + t.name + ".", 64, 32, false, func(v *isa) body {
			return func(dst, src Mem) {
				for i := range 2 {
					x := YMM()
					t.widen(src.Offset(64*i), x)
					v.store(x, dst.Offset(32*i))
				}
			}
		}}.emit(v)
		kernel{"narrow" + t.name, "rounds to " + t.name + ".", 32, 64, false, func(v *isa) body {
			zero := v.word(0)
			beyond, largest := v.float(1<<63), ZMM()
			VPTERNLOGQ(U8(0xff), largest, largest, largest)
			VPSRLQ(U8(1), largest, largest)
			return func(dst, src Mem) {
				for i := range 2 {
					x, y, k := YMM(), ZMM(), K()
					VMOVUPS(src.Offset(32*i), x)
					VCMPPS(U8(ordered), x, x, k)
					VMOVUPS_Z(x, k, x)
					if t.name == "U64" {
						VMAXPS(half(zero[0]), x, x)
						t.narrow(x, y)
					} else {
						k := K()
						VCMPPS(U8(notLess), half(beyond[0]), x, k)
						t.narrow(x, y)
						VMOVDQU64(largest, k, y)
					}
					v.store(y, dst.Offset(64*i))
				}
			}
		}}.emit(v)
	}
}

// float returns a constant with the bits of a float.
func (v *isa) float(f float64) val { return v.word(math.Float32bits(float32(f))) }

// number replaces NaN by zero.
func (v *isa) number(x val) val { return v.where(v.compare(ordered, x, x), x) }

// packBytes returns the low bytes of lanes that pack does not saturate; see bytesOf.
func (v *isa) packBytes(pack [2]func(ops ...Op), x val) Op {
	low := XMM()
	if v == avx512 {
		VPMOVDB(x[0], low)
		return low
	}
	words, high := v.wordsOf(pack[0], x)[0], XMM()
	VEXTRACTI128(U8(1), words, high)
	pack[1](high, half(words), low)
	return low
}
