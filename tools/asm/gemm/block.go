package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// blockRows and blockCols are the rows of x and of w in a block of dotBlock:
// with one register per sum they fill the register file.
func (v *vector) blockRows() int { return v.lanes / 2 }

const blockCols = 3

// dotBlock emits the products of a few rows of x with up to three rows of w.
// Both are read where they lie; eleven loads serve 24 multiply-adds.
func dotBlock(v *vector, cols int) {
	rows := v.blockRows()
	doc := "k a multiple of 8."
	if v == avx512 {
		doc = "any k."
	}
	text(sprintf("block%sx%d", v.name, cols),
		"func(k int, x *float32, ldx int, w *float32, ldw int, out *float32)",
		sprintf("out[%d·j+i] = x[i·ldx:]·w[j·ldw:], strides in bytes, i < %d, j < %d; %s", rows, rows, cols, doc))
	param("k", reg.RCX)
	param("x", reg.RSI)
	param("ldx", reg.R8)
	param("w", reg.RDX)
	param("ldw", reg.R9)
	param("out", reg.RDI)
	LEAQ(Mem{Base: reg.R8, Index: reg.R8, Scale: 2}, reg.R12) // 3·ldx
	LEAQ(Mem{Base: reg.RSI, Index: reg.R8, Scale: 4}, reg.RAX)

	x := func(i int) Mem {
		base := []reg.GPPhysical{reg.RSI, reg.RAX}[i/4]
		return []Mem{
			{Base: base}, {Base: base, Index: reg.R8, Scale: 1},
			{Base: base, Index: reg.R8, Scale: 2}, {Base: base, Index: reg.R12, Scale: 1},
		}[i%4]
	}
	w := func(j int) Mem {
		return []Mem{{Base: reg.RDX}, {Base: reg.RDX, Index: reg.R9, Scale: 1}, {Base: reg.RDX, Index: reg.R9, Scale: 2}}[j]
	}
	// The sums of one column lie side by side, in the registers that the
	// fold needs without EVEX.
	sum := func(i, j int) reg.VecPhysical { return v.r[j*rows+i] }
	row := func(j int) reg.VecPhysical { return v.r[blockCols*rows+j] }
	temp := v.r[len(v.r)-1]

	for j := range cols {
		for i := range rows {
			zero(sum(i, j))
		}
	}
	advance := func() {
		for _, r := range []reg.GPPhysical{reg.RSI, reg.RAX}[:(rows+3)/4] {
			ADDQ(I32(int32(v.bytes())), r)
		}
		ADDQ(I32(int32(v.bytes())), reg.RDX)
	}
	step := func(mask ...reg.OpmaskPhysical) {
		for j := range cols {
			f32.load(w(j), row(j), mask...)
		}
		for i := range rows {
			f32.load(x(i), temp, mask...)
			for j := range cols {
				VFMADD231PS(temp, row(j), sum(i, j))
			}
		}
	}
	SUBQ(I32(int32(v.lanes)), reg.RCX)
	JLT(LabelRef("rest"))
	align()
	Label("loop")
	step()
	advance()
	SUBQ(I32(int32(v.lanes)), reg.RCX)
	JGE(LabelRef("loop"))
	Label("rest")
	if v == avx512 {
		ADDQ(I32(int32(v.lanes)), reg.RCX)
		JZ(LabelRef("fold"))
		mask512(reg.RCX, reg.RBX, reg.K1)
		step(reg.K1)
		Label("fold")
	}
	for j := range cols {
		if v == avx512 {
			foldEight(v.r[j*rows:(j+1)*rows], v.r[blockCols*rows:])
			VMOVUPS(v.r[j*rows].AsY(), Mem{Base: reg.RDI, Disp: 4 * j * rows})
		} else {
			foldFour(v.r[j*rows:(j+1)*rows], v.r[blockCols*rows:])
			VMOVUPS(v.r[j*rows].AsX(), Mem{Base: reg.RDI, Disp: 4 * j * rows})
		}
	}
	VZEROUPPER()
	RET()
}

// foldEight leaves in the lower half of z[0] the sums across each of the 8
// registers z. It uses 8 temporaries.
func foldEight(z, tmp []reg.VecPhysical) {
	for i := range 8 {
		VEXTRACTF64X4(U8(1), z[i], tmp[i].AsY())
		VADDPS(z[i].AsY(), tmp[i].AsY(), z[i].AsY())
	}
	for i := 0; i < 8; i += 4 {
		pairs(z[i:i+4], tmp)
	}
	VSHUFF32X4(U8(0), z[4].AsY(), z[0].AsY(), tmp[0].AsY()) // the lower halves of both
	VSHUFF32X4(U8(3), z[4].AsY(), z[0].AsY(), tmp[1].AsY()) // the upper halves
	VADDPS(tmp[1].AsY(), tmp[0].AsY(), z[0].AsY())
}

// foldFour leaves in the lower half of y[0] the sums across each of the 4
// registers y of 8 lanes. It uses 2 temporaries.
func foldFour(y, tmp []reg.VecPhysical) {
	pairs(y, tmp)
	VEXTRACTF128(U8(1), y[0], tmp[0].AsX())
	VADDPS(tmp[0].AsX(), y[0].AsX(), y[0].AsX())
}

// pairs leaves in the lanes 4h…4h+3 of r[0] the sums across lanes 4h…4h+3 of
// r[0] to r[3].
func pairs(r, tmp []reg.VecPhysical) {
	a, b := tmp[0].AsY(), tmp[1].AsY()
	for i := 0; i < 4; i += 2 {
		VUNPCKLPS(r[i+1].AsY(), r[i].AsY(), a)
		VUNPCKHPS(r[i+1].AsY(), r[i].AsY(), b)
		VADDPS(b, a, r[i].AsY())
	}
	VUNPCKLPD(r[2].AsY(), r[0].AsY(), a)
	VUNPCKHPD(r[2].AsY(), r[0].AsY(), b)
	VADDPS(b, a, r[0].AsY())
}
