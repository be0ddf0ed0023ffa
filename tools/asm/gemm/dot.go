package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// strands is the number of registers per sum of dotRows, enough to hide the latency of the multiply-adds for one row of
// x.
const strands = 4

// dotRows emits the products of rows of x with n rows of w, each read once and sequentially. The hardware prefetcher
// follows this except across pages, and is nearly twice as fast as explicit prefetching of every line (Zen 4).
func dotRows(v *vector, rows int, e elem) {
	text(sprintf("dot%s%sx%d", v.name, e.name, rows),
		"func(k int, x *float32, ldx int, w *byte, ldw, n int, out *float32, ldo int)",
		sprintf("out[i·ldo+4j] = x[i·ldx:]·w[j·ldw:], strides in bytes, i < %d, j < n.", rows))
	param("x", reg.RSI)
	param("ldx", reg.R8)
	param("w", reg.RDX)
	param("ldw", reg.R9)
	param("n", reg.R10)
	param("out", reg.RDI)
	param("ldo", reg.R11)
	LEAQ(Mem{Base: reg.R8, Index: reg.R8, Scale: 2}, reg.R12) // 3·ldx
	LEAQ(Mem{Base: reg.R11, Index: reg.R11, Scale: 2}, reg.R13)

	sum := func(i, s int) reg.VecPhysical { return v.r[i*strands+s] }
	wide := func(s int) reg.VecPhysical { return v.r[len(v.r)-1-s%(len(v.r)-rows*strands)] }
	last := edge{vector: v, elem: e, n: reg.RCX, lanes: reg.R15, last: reg.R14}
	row := func(base, step, step3 reg.GPPhysical, i, disp int) Mem {
		return []Mem{
			{Base: base, Disp: disp}, {Base: base, Index: step, Scale: 1, Disp: disp},
			{Base: base, Index: step, Scale: 2, Disp: disp}, {Base: base, Index: step3, Scale: 1, Disp: disp},
		}[i]
	}

	Label("row")
	param("k", reg.RCX)
	MOVQ(reg.RSI, reg.RAX)
	MOVQ(reg.RDX, reg.RBX)
	for i := range rows * strands {
		zero(v.r[i])
	}
	SUBQ(I32(int32(strands*v.lanes)), reg.RCX)
	JLT(LabelRef("rest"))
	align()
	Label("loop")
	if rows == 1 { // with more rows memory is not the bottleneck
		nextPage(reg.RBX, reg.R15, strands*v.lanes*e.size)
	}
	for s := range strands {
		disp := s * v.lanes * e.size
		e.load(Mem{Base: reg.RBX, Disp: disp}, wide(s))
		for i := range rows {
			VFMADD231PS(row(reg.RAX, reg.R8, reg.R12, i, s*v.bytes()), wide(s), sum(i, s))
		}
	}
	ADDQ(I32(int32(strands*v.bytes())), reg.RAX)
	ADDQ(I32(int32(strands*v.lanes*e.size)), reg.RBX)
	SUBQ(I32(int32(strands*v.lanes)), reg.RCX)
	JGE(LabelRef("loop"))
	Label("rest")
	ADDQ(I32(int32(strands*v.lanes)), reg.RCX)
	JZ(LabelRef("fold"))
	Label("piece")
	if v == avx512 {
		mask512(reg.RCX, reg.R15, reg.K1)
		e.load(Mem{Base: reg.RBX}, wide(0), reg.K1)
		for i := range rows { // masked elements are not read
			VFMADD231PS(row(reg.RAX, reg.R8, reg.R12, i, 0), wide(0), reg.K1, sum(i, 0))
		}
	} else {
		CMPQ(reg.RCX, I32(int32(v.lanes)))
		JLT(LabelRef("edge"))
		e.load(Mem{Base: reg.RBX}, wide(0))
		for i := range rows {
			VFMADD231PS(row(reg.RAX, reg.R8, reg.R12, i, 0), wide(0), sum(i, 0))
		}
	}
	ADDQ(I32(int32(v.bytes())), reg.RAX)
	ADDQ(I32(int32(v.lanes*e.size)), reg.RBX)
	SUBQ(I32(int32(v.lanes)), reg.RCX)
	JG(LabelRef("piece"))
	if v == avx2 {
		JMP(LabelRef("fold"))
		Label("edge")
		last.begin()
		last.load(Mem{Base: reg.RBX}, wide(1), wide(0))
		v.mask256(reg.RCX, wide(1), wide(1))
		for i := range rows {
			VMASKMOVPS(row(reg.RAX, reg.R8, reg.R12, i, 0), wide(1), wide(2))
			VFMADD231PS(wide(2), wide(0), sum(i, 0))
		}
	}
	Label("fold")
	for i := range rows {
		VADDPS(sum(i, 1), sum(i, 0), sum(i, 0))
		VADDPS(sum(i, 3), sum(i, 2), sum(i, 2))
		VADDPS(sum(i, 2), sum(i, 0), sum(i, 0))
		across(sum(i, 0), sum(i, 1))
		MOVSS(sum(i, 0).AsX(), row(reg.RDI, reg.R11, reg.R13, i, 0))
	}
	ADDQ(I32(4), reg.RDI)
	ADDQ(reg.R9, reg.RDX)
	DECQ(reg.R10)
	JNZ(LabelRef("row"))
	VZEROUPPER()
	RET()
}

// across sums all lanes of z into lane 0.
func across(z, tmp reg.VecPhysical) {
	if z.Size() == 64 {
		VEXTRACTF64X4(U8(1), z, tmp.AsY())
		VADDPS(tmp.AsY(), z.AsY(), z.AsY())
	}
	VEXTRACTF128(U8(1), z.AsY(), tmp.AsX())
	VADDPS(tmp.AsX(), z.AsX(), z.AsX())
	VPSHUFD(U8(0xee), z.AsX(), tmp.AsX())
	VADDPS(tmp.AsX(), z.AsX(), z.AsX())
	VPSHUFD(U8(0x55), z.AsX(), tmp.AsX())
	VADDSS(tmp.AsX(), z.AsX(), z.AsX())
}
