package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// doubles emits the conversions of F64. Their names are reversed: "widen" always converts to float32.
func doubles(v *isa) {
	kernel{"widenF64", "rounds F64 to float32.", 64, 32, true, func(v *isa) body {
		return func(dst, src Mem) {
			for i := range 128 / v.bytes {
				if v == avx512 {
					x := YMM()
					VCVTPD2PS(src.Offset(64*i), x)
					v.store(x, dst.Offset(32*i))
				} else {
					x := XMM()
					VCVTPD2PSY(src.Offset(32*i), x)
					v.store(x, dst.Offset(16*i))
				}
			}
		}
	}}.emit(v)
	kernel{"narrowF64", "widens float32 to F64.", 32, 64, true, func(v *isa) body {
		return func(dst, src Mem) {
			for i := range 128 / v.bytes {
				var x Op = YMM()
				if v == avx512 {
					x = ZMM()
				}
				VCVTPS2PD(src.Offset(v.bytes/2*i), x)
				v.store(x, dst.Offset(v.bytes*i))
			}
		}
	}}.emit(v)
}

// half returns the lower half of a register.
func half(x Op) Op {
	r := x.(reg.VecVirtual)
	if r.Size() == 64 {
		return r.AsY()
	}
	return r.AsX()
}
