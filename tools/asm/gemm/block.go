package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// blockRows is how many rows of x a block of dotBlock has, blockCols how many
// rows of w: with one register per sum they fill the register file, and ten
// loads serve 24 multiply-adds (seven serve 12 with AVX2).
const blockRows = 4

func (v *vector) blockCols() int { return (len(v.r) - 5) / blockRows }

// dotBlock emits the products of a few rows of x, where they lie, with a few
// rows of w, which are packed side by side: rows of x that are a power of two
// apart share their places in the nearest cache, and those of w would, too.
func dotBlock(v *vector, cols int) {
	text(sprintf("block%sx%d", v.name, cols),
		"func(k int, x *float32, ldx int, w *float32, c *float32, ldc int, alpha float32)",
		sprintf("c[i·ldc+4j] += alpha·x[i·ldx:]·w[j], strides in bytes, i < %d, j < %d; element t of w[j] is w[t/%d][j][t%%%d], zeroes beyond k.", blockRows, cols, v.lanes, v.lanes))
	param("k", reg.RCX)
	param("x", reg.RSI)
	param("ldx", reg.R8)
	param("w", reg.RDX)
	param("c", reg.RDI)
	param("ldc", reg.R9)
	LEAQ(Mem{Base: reg.R8, Index: reg.R8, Scale: 2}, reg.R12) // 3·ldx

	sum := func(i int) []reg.VecPhysical { return v.r[i*cols : (i+1)*cols] }
	free := v.r[blockRows*cols:]
	row, temp, mask := free[:cols], free[cols], v.r[len(v.r)-1]
	for _, z := range v.r[:blockRows*cols] {
		zero(z)
	}
	step := func(load func(Mem)) {
		for j := range cols {
			VMOVUPS(Mem{Base: reg.RDX, Disp: j * v.bytes()}, row[j])
		}
		for i := range blockRows {
			load([]Mem{
				{Base: reg.RSI}, {Base: reg.RSI, Index: reg.R8, Scale: 1},
				{Base: reg.RSI, Index: reg.R8, Scale: 2}, {Base: reg.RSI, Index: reg.R12, Scale: 1},
			}[i])
			for j, z := range sum(i) {
				VFMADD231PS(temp, row[j], z)
			}
		}
	}
	SUBQ(I32(int32(v.lanes)), reg.RCX)
	JLT(LabelRef("rest"))
	align()
	Label("loop")
	step(func(m Mem) { VMOVUPS(m, temp) })
	ADDQ(I32(int32(v.bytes())), reg.RSI)
	ADDQ(I32(int32(cols*v.bytes())), reg.RDX)
	SUBQ(I32(int32(v.lanes)), reg.RCX)
	JGE(LabelRef("loop"))
	Label("rest")
	ADDQ(I32(int32(v.lanes)), reg.RCX)
	JZ(LabelRef("fold"))
	if v == avx512 {
		mask512(reg.RCX, reg.RBX, reg.K1)
		step(func(m Mem) { VMOVUPS_Z(m, reg.K1, temp) })
	} else {
		v.mask256(reg.RCX, temp, mask)
		step(func(m Mem) { VMASKMOVPS(m, mask, temp) })
	}
	Label("fold")
	MOVQ(I32(int32(cols)), reg.RCX)
	if v == avx512 {
		mask512(reg.RCX, reg.RBX, reg.K1)
	}
	for i := range blockRows {
		z := foldRow(v, sum(i), free)
		alpha, old := free[0], free[1]
		p, _ := Param("alpha").Resolve()
		at := Mem{Base: reg.RDI}
		if v == avx512 {
			VBROADCASTSS(p.Addr, alpha.AsY())
			VMOVUPS_Z(at, reg.K1, old.AsY())
			VFMADD231PS(z.AsY(), alpha.AsY(), old.AsY())
			VMOVUPS(old.AsY(), reg.K1, at)
		} else {
			v.mask256(reg.RCX, alpha, mask)
			VBROADCASTSS(p.Addr, alpha.AsX())
			VMASKMOVPS(at, mask.AsX(), old.AsX())
			VFMADD231PS(z.AsX(), alpha.AsX(), old.AsX())
			VMASKMOVPS(old.AsX(), mask.AsX(), at)
		}
		if i < blockRows-1 {
			ADDQ(reg.R9, reg.RDI)
		}
	}
	VZEROUPPER()
	RET()
}

// foldRow returns a register that holds the sums across each of the registers
// z, side by side: up to 8 of 16 lanes, or up to 4 of 8. It uses as many
// temporaries as there are registers.
func foldRow(v *vector, z, tmp []reg.VecPhysical) reg.VecPhysical {
	if v == avx512 {
		for i := range z {
			VEXTRACTF64X4(U8(1), z[i], tmp[i].AsY())
			VADDPS(z[i].AsY(), tmp[i].AsY(), z[i].AsY())
		}
	}
	pairs(z[:min(4, len(z))], tmp)
	if len(z) > 4 {
		pairs(z[4:], tmp)
		VSHUFF32X4(U8(0), z[4].AsY(), z[0].AsY(), tmp[0].AsY()) // the lower halves of both
		VSHUFF32X4(U8(3), z[4].AsY(), z[0].AsY(), tmp[1].AsY()) // the upper halves
		VADDPS(tmp[1].AsY(), tmp[0].AsY(), z[0].AsY())
		return z[0]
	}
	if v == avx512 {
		VEXTRACTF32X4(U8(1), z[0].AsY(), tmp[0].AsX())
	} else {
		VEXTRACTF128(U8(1), z[0], tmp[0].AsX())
	}
	VADDPS(tmp[0].AsX(), z[0].AsX(), z[0].AsX())
	return z[0]
}

// pairs leaves in the lanes 4h…4h+3 of r[0] the sums across lanes 4h…4h+3 of
// r[0] to r[3], or of as many as there are.
func pairs(r, tmp []reg.VecPhysical) {
	a, b := tmp[0].AsY(), tmp[1].AsY()
	last := len(r) - 1
	for i := 0; i <= last; i += 2 {
		next := r[min(i+1, last)]
		VUNPCKLPS(next.AsY(), r[i].AsY(), a)
		VUNPCKHPS(next.AsY(), r[i].AsY(), b)
		VADDPS(b, a, r[i].AsY())
	}
	other := r[min(2, last&^1)]
	VUNPCKLPD(other.AsY(), r[0].AsY(), a)
	VUNPCKHPD(other.AsY(), r[0].AsY(), b)
	VADDPS(b, a, r[0].AsY())
}
