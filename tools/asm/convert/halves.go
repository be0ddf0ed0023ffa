package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
)

// halves emits the conversions of the two 16-bit floats.
func halves(v *isa) {
	kernel{"widenBF16", "widens bfloat16.", 16, 32, true, func(v *isa) body {
		return func(dst, src Mem) {
			v.put(v.left(v.words(VPMOVZXWD, src), 16), dst)
		}
	}}.emit(v)
	kernel{"widenF16", "widens binary16.", 16, 32, true, func(v *isa) body {
		return func(dst, src Mem) { v.put(v.words(VCVTPH2PS, src), dst) }
	}}.emit(v)
	kernel{"narrowBF16", "rounds to bfloat16.", 32, 16, true, (*isa).narrowBF16}.emit(v)
	kernel{"narrowF16", "rounds to binary16.", 32, 16, true, func(v *isa) body {
		return func(dst, src Mem) {
			for i, x := range v.lanes(src) {
				half := Op(YMM())
				if v == avx2 {
					half = XMM()
				}
				VCVTPS2PH(U8(0), x, half)
				v.store(half, dst.Offset(i*v.bytes/2))
			}
		}
	}}.emit(v)
}

// words loads 16 words from memory and widens each to a lane.
func (v *isa) words(widen func(ops ...Op), src Mem) val {
	x := v.regs()
	for i := range x {
		widen(src.Offset(i*v.bytes/2), x[i])
	}
	return x
}

// narrowBF16 adds half of the last place kept, or slightly less if the result would not be even, and truncates. NaN is
// quieted instead.
func (v *isa) narrowBF16() body {
	below, bit, quiet := v.word(0x7fff), v.word(1), v.word(0x00400000)
	return func(dst, src Mem) {
		x := v.lanes(src)
		odd := v.and(v.right(x, 16), bit)
		rounded := v.add(v.add(x, below), odd)
		x = v.choose(v.compare(unordered, x, x), v.or(x, quiet), rounded)
		v.put(v.wordsOf(VPACKUSDW, v.right(x, 16)), dst)
	}
}
