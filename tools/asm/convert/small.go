package main

import (
	"math"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
)

// small is an 8-bit float format: sign, exponent, mantissa.
type small struct {
	name     string
	mantissa int
	bias     int

	infinite bool   // has infinities and NaNs like IEEE formats
	nan      uint32 // code of NaN without sign
	largest  uint32 // code of values that are too large
}

var (
	f8E5M2 = small{name: "F8E5M2", mantissa: 2, bias: 15, infinite: true, nan: 0x7f, largest: 0x7c}
	f8E4M3 = small{name: "F8E4M3", mantissa: 3, bias: 7, nan: 0x7f, largest: 0x7e}
)

// smallFloats emits the conversions of the 8-bit floats.
func smallFloats(v *isa) {
	for _, f := range []small{f8E5M2, f8E4M3} {
		kernel{"widen" + f.name, "widens " + f.name + ".", 8, 32, false, func(v *isa) body {
			widen := f.widen(v)
			return func(dst, src Mem) { v.put(widen(src), dst) }
		}}.emit(v)
		kernel{"narrow" + f.name, "rounds to " + f.name + ".", 32, 8, false, func(v *isa) body {
			narrow := f.narrow(v)
			return func(dst, src Mem) { v.store(v.bytesOf(narrow(v.lanes(src))), dst) }
		}}.emit(v)
	}
}

// widen emits the values of 16 codes of one byte each.
func (f small) widen(v *isa) func(src Mem) val {
	if f.infinite {
		return f.widenAsF16(v)
	}
	value := f.value(v)
	return func(src Mem) val { return value(v.quarters(VPMOVZXBD, src)) }
}

// widenAsF16 widens a format that is the upper half of binary16.
func (f small) widenAsF16(v *isa) func(src Mem) val {
	return func(src Mem) val {
		x := v.regs()
		for i := range x {
			words := Op(YMM())
			if v == avx2 {
				words = XMM()
			}
			VPMOVZXBW(src.Offset(8*i), words)
			VPSLLW(U8(8), words, words)
			VCVTPH2PS(words, x[i])
		}
		return x
	}
}

// quarters loads 16 bytes from memory and widens each to a lane.
func (v *isa) quarters(widen func(ops ...Op), src Mem) val {
	x := v.regs()
	for i := range x {
		widen(src.Offset(i*v.bytes/4), x[i])
	}
	return x
}

// value emits the values of the codes in 16 lanes. Codes below 2^mantissa are subnormal: integer multiples of the
// smallest value. All others are shifted into position in a float32 and rebiased.
func (f small) value(v *isa) func(code val) val {
	rest := v.word(1<<(7) - 1)
	sign := v.word(0x80000000)
	normal, bias := v.word(1<<f.mantissa), v.word(uint32(127-f.bias)<<23)
	step := v.word(math.Float32bits(float32(math.Ldexp(1, 1-f.bias-f.mantissa))))
	nan, nanCode := v.word(0x7fc00000), v.word(f.nan)
	return func(code val) val {
		abs := v.and(code, rest)
		x := v.choose(v.less(abs, normal), v.mulF(v.two(VCVTDQ2PS, abs), step), v.add(v.left(abs, 23-f.mantissa), bias))
		x = v.choose(v.equal(abs, nanCode), nan, x)
		return v.or(x, v.and(v.left(code, 24), sign))
	}
}

// narrow emits the codes of 16 floats, rounded to nearest, ties to even.
func (f small) narrow(v *isa) func(x val) val {
	drop := 23 - f.mantissa
	rest, one := v.word(0x7fffffff), v.word(1)
	// This rounds and rebiases in one addition.
	round := v.word(1<<(drop-1) - 1 - uint32(127-f.bias)<<23)
	normal := v.word(uint32(128-f.bias) << 23)
	// The spacing of float32 numbers of this size equals the smallest subnormal: adding the number rounds to a multiple
	// of it, and leaves the code in the low bits.
	magic := v.word(uint32(127+24-f.bias-f.mantissa) << 23)
	sign := v.word(1 << (8 - 1))
	infinity := v.word(0x7f800000)
	limit, nan := v.word(f.largest), v.word(f.nan)
	return func(x val) val {
		abs := v.and(x, rest)
		odd := v.and(v.right(abs, drop), one)
		code := v.right(v.add(v.add(abs, round), odd), drop)
		code = v.choose(v.less(abs, normal), v.sub(v.addF(abs, magic), magic), code)
		code = v.min(code, limit)
		signBit := v.and(v.right(x, 24), sign)
		return v.or(v.choose(v.less(infinity, abs), nan, code), signBit)
	}
}
