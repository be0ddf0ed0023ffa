package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// conversions emit the kernels between float32 and 16 bits. They handle whole
// registers; the caller does the rest, which AVX2 cannot mask.
func conversions(v *isa) {
	widen := func(name, doc string, f func(m Mem, r reg.VecVirtual)) {
		v.text(name, "dst []float32, src []uint16", doc)
		v.each16("dst", "src", func(dst, src Mem) {
			r := v.reg()
			f(src, r)
			VMOVUPS(r, dst)
		})
	}
	widen("widenBF16", "widens bfloat16, whole registers only.", func(m Mem, r reg.VecVirtual) {
		VPMOVZXWD(m, r)
		VPSLLD(U8(16), r, r)
	})
	widen("widenF16", "widens half precision, whole registers only.", func(m Mem, r reg.VecVirtual) { VCVTPH2PS(m, r) })

	narrow := func(name, doc string, setup func() func(r reg.VecVirtual, m Mem)) {
		v.text(name, "dst []uint16, src []float32", doc)
		f := setup()
		v.each16("src", "dst", func(src, dst Mem) {
			r := v.reg()
			VMOVUPS(src, r)
			f(r, dst)
		})
	}
	narrow("narrowF16", "rounds to half precision, whole registers only.", func() func(r reg.VecVirtual, m Mem) {
		return func(r reg.VecVirtual, m Mem) { VCVTPS2PH(U8(0), r, m) }
	})
	narrow("narrowBF16", "rounds to bfloat16, whole registers only.", v.narrowBF16)
}

// each16 goes over whole registers of 32-bit words at wide and as many 16-bit
// words at slim, four at a time.
func (v *isa) each16(wide, slim string, body func(wide, slim Mem)) {
	n, at := length("dst"), GP64()
	w, s := base(wide), base(slim)
	XORQ(at, at)
	for _, unroll := range []int{4, 1} {
		step := unroll * v.lanes
		loop, done := label("loop", unroll), label("done", unroll)
		SUBQ(I32(step), n)
		JLT(LabelRef(done))
		Label(loop)
		for i := range unroll {
			body(Mem{Base: w, Index: at, Scale: 4, Disp: i * v.bytes()}, Mem{Base: s, Index: at, Scale: 2, Disp: i * v.bytes() / 2})
		}
		ADDQ(I32(step), at)
		SUBQ(I32(step), n)
		JGE(LabelRef(loop))
		Label(done)
		ADDQ(I32(step), n)
	}
	end()
}

// narrowBF16 adds half of the last place kept, or just below it where the
// result would not be even, and truncates; NaN is made quiet instead.
func (v *isa) narrowBF16() func(r reg.VecVirtual, m Mem) {
	below, bit, quiet := v.word(0x7fff), v.word(1), v.word(0x00400000)
	return func(r reg.VecVirtual, m Mem) {
		odd, q := v.reg(), v.reg()
		VPSRLD(U8(16), r, odd)
		const unordered = 3
		if v == avx512 {
			nan := K()
			VCMPPS(U8(unordered), r, r, nan)
			VPANDD(bit[0], odd, odd)
			VPORD(quiet[0], r, q)
			VPADDD(below[0], r, r)
			VPADDD(odd, r, r)
			VMOVAPS(q, nan, r)
			VPSRLD(U8(16), r, r)
			VPMOVDW(r, m)
			return
		}
		nan := v.reg()
		VCMPPS(U8(unordered), r, r, nan)
		VPAND(bit[0], odd, odd)
		VPOR(quiet[0], r, q)
		VPADDD(below[0], r, r)
		VPADDD(odd, r, r)
		VBLENDVPS(nan, q, r, r)
		VPSRLD(U8(16), r, r)
		hi := XMM()
		VEXTRACTI128(U8(1), r, hi)
		VPACKUSDW(hi, r.AsX(), hi)
		VMOVDQU(hi, m)
	}
}
