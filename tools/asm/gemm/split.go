package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// These are kernels for one row of x and rows of bfloat16. A register of 32 of them is widened by a shift, for elements
// with even index, and by a mask, for the others. That takes half the instructions of widening 16 at a time, so the
// processor looks twice as far ahead while it waits for memory. The elements of x are separated in the same way.

// splitRow emits dst = x with even and odd elements separated, 16 of each at a time.
func splitRow() {
	v := avx512
	even := GLOBL("even512", 8|16) // RODATA, NOPTR
	for i := range v.lanes {
		DATA(4*i, U32(uint32(2*i)))
	}
	odd := GLOBL("odd512", 8|16)
	for i := range v.lanes {
		DATA(4*i, U32(uint32(2*i+1)))
	}
	text("split512", "func(dst, x *float32, k int)",
		"dst[32i+j] = x[32i+2j], dst[32i+16+j] = x[32i+2j+1] for j < 16, zeroes from x[k] on, up to a multiple of 32.")
	param("dst", reg.RDI)
	param("x", reg.RSI)
	param("k", reg.RCX)
	VMOVUPS(even, reg.Z2)
	VMOVUPS(odd, reg.Z3)
	MOVQ(I32(int32(2*v.lanes)), reg.R8)
	align()
	Label("loop")
	MOVQ(reg.RCX, reg.RBX)
	CMPQ(reg.RBX, reg.R8)
	CMOVQGT(reg.R8, reg.RBX)
	mask512(reg.RBX, reg.RAX, reg.K1, reg.K2)
	VMOVUPS_Z(Mem{Base: reg.RSI}, reg.K1, reg.Z0)
	VMOVUPS_Z(Mem{Base: reg.RSI, Disp: v.bytes()}, reg.K2, reg.Z1)
	VMOVAPS(reg.Z0, reg.Z4)
	VPERMT2PS(reg.Z1, reg.Z2, reg.Z0)
	VPERMT2PS(reg.Z1, reg.Z3, reg.Z4)
	VMOVUPS(reg.Z0, Mem{Base: reg.RDI})
	VMOVUPS(reg.Z4, Mem{Base: reg.RDI, Disp: v.bytes()})
	ADDQ(I32(int32(2*v.bytes())), reg.RSI)
	ADDQ(I32(int32(2*v.bytes())), reg.RDI)
	SUBQ(I32(int32(2*v.lanes)), reg.RCX)
	JG(LabelRef("loop"))
	VZEROUPPER()
	RET()
}

// dotSplit emits the products of a split row with n rows of bfloat16, each read once and sequentially. The shift and
// the mask both read from memory: a loop that loads once into a register used by both is slower (Zen 4).
func dotSplit() {
	const unroll = 4 // 32 elements at a time, over two pairs of sums
	v := avx512
	text("dotSplit512", "func(k int, x *float32, w *byte, ldw, n int, out *float32)",
		"out[j] = x·w[j·ldw:] over k for j < n, ldw in bytes; x as split512 makes it.")
	param("x", reg.RSI)
	param("w", reg.RDX)
	param("ldw", reg.R9)
	param("n", reg.R10)
	param("out", reg.RDI)
	upper := reg.Z31
	MOVL(U32(0xffff0000), reg.EAX)
	VPBROADCASTD(reg.EAX, upper)
	piece := func(d, pair int, masked bool) {
		w, low := v.r[8+2*d], v.r[9+2*d]
		if src := (Mem{Base: reg.RBX, Disp: d * v.bytes()}); masked {
			VMOVDQU16_Z(src, reg.K1, w)
			VPSLLD(U8(16), w, low)
			VPANDD(upper, w, w)
		} else {
			VPSLLD(U8(16), src, low)
			VPANDD(src, upper, w)
		}
		VFMADD231PS(Mem{Base: reg.RAX, Disp: 2 * d * v.bytes()}, low, v.r[2*pair])
		VFMADD231PS(Mem{Base: reg.RAX, Disp: (2*d + 1) * v.bytes()}, w, v.r[2*pair+1])
	}
	advance := func(pieces int) {
		ADDQ(I32(int32(2*pieces*v.bytes())), reg.RAX)
		ADDQ(I32(int32(pieces*v.bytes())), reg.RBX)
		SUBQ(I32(int32(2*pieces*v.lanes)), reg.RCX)
	}

	Label("row")
	param("k", reg.RCX)
	MOVQ(reg.RSI, reg.RAX)
	MOVQ(reg.RDX, reg.RBX)
	for _, z := range v.r[:4] {
		zero(z)
	}
	SUBQ(I32(2*unroll*int32(v.lanes)), reg.RCX)
	JLT(LabelRef("rest"))
	align()
	Label("loop")
	nextPage(reg.RBX, reg.R8, unroll*v.bytes())
	for d := range unroll {
		piece(d, d%2, false)
	}
	advance(unroll)
	JGE(LabelRef("loop"))
	Label("rest")
	ADDQ(I32(2*unroll*int32(v.lanes)), reg.RCX)
	JZ(LabelRef("fold"))
	Label("piece")
	MOVL(U32(0xffffffff), reg.R8L)
	BZHIL(reg.ECX, reg.R8L, reg.R8L) // all of them if 32 or more are left
	KMOVD(reg.R8L, reg.K1)
	piece(0, 0, true)
	advance(1)
	JG(LabelRef("piece"))
	Label("fold")
	VADDPS(v.r[2], v.r[0], v.r[0])
	VADDPS(v.r[3], v.r[1], v.r[1])
	VADDPS(v.r[1], v.r[0], v.r[0])
	across(v.r[0], v.r[1])
	MOVSS(v.r[0].AsX(), Mem{Base: reg.RDI})
	ADDQ(I32(4), reg.RDI)
	ADDQ(reg.R9, reg.RDX)
	DECQ(reg.R10)
	JNZ(LabelRef("row"))
	VZEROUPPER()
	RET()
}
