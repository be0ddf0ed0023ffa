package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// blockCols returns the number of rows of w in a block of dotBlock with four rows of x. With one register per sum they
// fill the register file, and ten loads serve 24 multiply-adds (seven serve 12 with AVX2). Blocks of blockWide, which
// divides many ranks, have three rows of x.
func (v *vector) blockCols() int { return (len(v.r) - 5) / 4 }

const blockWide = 8

func blockRows(cols int) int {
	if cols == blockWide {
		return 3
	}
	return 4
}

// dotBlock emits the products of a few rows of x, read in place, with a few rows of w, which are packed side by side.
// Unpacked rows at a power-of-two distance would share cache sets, as rows of x do. The kernel prefetches the following
// part of x sequentially, since no hardware prefetcher does so for many short rows. With pairs, x is rounded to
// bfloat16 on the fly, as w already is.
func dotBlock(v *vector, cols int, pairs bool) {
	name, lanes, what := v.name, v.lanes, ""
	if pairs {
		name, lanes, what = "Pairs"+v.name, 2*v.lanes, ", both rounded to bfloat16"
	}
	rows := blockRows(cols)
	text(sprintf("block%sx%d", name, cols),
		"func(k int, x *float32, ldx int, w *float32, c *float32, ldc, ahead int, alpha float32)",
		sprintf("c[i·ldc+4j] += alpha·x[i·ldx:]·w[j]%s, strides in bytes, i < %d, j < %d; element t of w[j] is w[t/%d][j][t%%%d], zeroes beyond k; fetches as much as it reads of x, from ahead bytes behind x on.",
			what, rows, cols, lanes, lanes))
	param("k", reg.RCX)
	param("x", reg.RSI)
	param("ldx", reg.R8)
	param("w", reg.RDX)
	param("c", reg.RDI)
	param("ldc", reg.R9)
	param("ahead", reg.R13)
	ADDQ(reg.RSI, reg.R13)
	LEAQ(Mem{Base: reg.R8, Index: reg.R8, Scale: 2}, reg.R12) // 3·ldx

	sum := func(i int) []reg.VecPhysical { return v.r[i*cols : (i+1)*cols] }
	free := v.r[rows*cols:]
	last := free[len(free)-1]
	for _, z := range v.r[:rows*cols] {
		zero(z)
	}
	// at returns the address of row i of x, plus disp bytes.
	at := func(i, disp int) Mem { return rowAt([]reg.GPPhysical{reg.RSI}, reg.R8, reg.R12, i, disp) }
	// The side with fewer rows is held in registers; rows of the other side are loaded one after another.
	step := func(load func(m Mem, part int, z reg.VecPhysical)) {
		x := func(i int, z reg.VecPhysical) {
			for part := range lanes / v.lanes {
				if n := (i*lanes + part*v.lanes) * 4; n%64 == 0 {
					PREFETCHT1(Mem{Base: reg.R13, Disp: n})
				}
				load(at(i, part*v.bytes()), part, []reg.VecPhysical{z, last}[part])
			}
			if pairs {
				narrowPairs(z, last, z)
			}
		}
		w := func(j int, z reg.VecPhysical) { VMOVUPS(Mem{Base: reg.RDX, Disp: j * v.bytes()}, z) }
		multiply := func(i, j int, x, w reg.VecPhysical) {
			if pairs {
				dotPairs(x, w, sum(i)[j])
			} else {
				VFMADD231PS(x, w, sum(i)[j])
			}
		}
		if cols == blockWide {
			for i := range rows {
				x(i, free[i])
			}
			for j := range cols {
				one := free[rows+j%3]
				w(j, one)
				for i := range rows {
					multiply(i, j, free[i], one)
				}
			}
			return
		}
		for j := range cols {
			w(j, free[j])
		}
		for i := range rows {
			x(i, free[cols])
			for j := range cols {
				multiply(i, j, free[cols], free[j])
			}
		}
	}
	SUBQ(I32(int32(lanes)), reg.RCX)
	JLT(LabelRef("rest"))
	align()
	Label("loop")
	step(func(m Mem, _ int, z reg.VecPhysical) { VMOVUPS(m, z) })
	ADDQ(I32(int32(4*lanes)), reg.RSI)
	ADDQ(I32(int32(4*lanes*rows)), reg.R13)
	ADDQ(I32(int32(cols*v.bytes())), reg.RDX)
	SUBQ(I32(int32(lanes)), reg.RCX)
	JGE(LabelRef("loop"))
	Label("rest")
	ADDQ(I32(int32(lanes)), reg.RCX)
	JZ(LabelRef("fold"))
	if v == avx512 {
		masks := []reg.OpmaskPhysical{reg.K1, reg.K2}
		mask512(reg.RCX, reg.RBX, masks[:lanes/v.lanes]...)
		step(func(m Mem, part int, z reg.VecPhysical) { VMOVUPS_Z(m, masks[part], z) })
	} else {
		v.mask256(reg.RCX, free[cols], last)
		step(func(m Mem, _ int, z reg.VecPhysical) { VMASKMOVPS(m, last, z) })
	}
	Label("fold")
	MOVQ(I32(int32(cols)), reg.RCX)
	if v == avx512 {
		mask512(reg.RCX, reg.RBX, reg.K1)
	}
	for i := range rows {
		z := foldRow(v, sum(i), free)
		if v == avx2 {
			v.mask256(reg.RCX, free[0], last)
		}
		v.addFolded(z, last, free, Mem{Base: reg.RDI})
		if i < rows-1 {
			ADDQ(reg.R9, reg.RDI)
		}
	}
	VZEROUPPER()
	RET()
}

// foldRow returns a register with the horizontal sums of the registers z side by side: up to 8 of 16 lanes, or up to 4
// of 8. It uses as many temporaries as there are registers.
func foldRow(v *vector, z, tmp []reg.VecPhysical) reg.VecPhysical {
	if v == avx512 {
		for i := range z {
			VEXTRACTF64X4(U8(1), z[i], tmp[i].AsY())
			VADDPS(z[i].AsY(), tmp[i].AsY(), z[i].AsY())
		}
	}
	lower := make([]reg.Register, len(z))
	for i := range z {
		lower[i] = z[i].AsY()
	}
	pairs(lower[:min(4, len(z))], tmp[0].AsY(), tmp[1].AsY())
	if len(z) > 4 {
		pairs(lower[4:], tmp[0].AsY(), tmp[1].AsY())
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

// addFolded adds the parameter alpha times a result of foldRow to floats in memory, in the lanes of K1 or, with AVX2,
// of mask.
func (v *vector) addFolded(z, mask reg.VecPhysical, tmp []reg.VecPhysical, to Mem) {
	sums, alpha, old, lanes := z.AsX(), tmp[0].AsX(), tmp[1].AsX(), mask.AsX()
	if v == avx512 {
		sums, alpha, old, lanes = z.AsY(), tmp[0].AsY(), tmp[1].AsY(), reg.K1
	}
	p, _ := Param("alpha").Resolve()
	VBROADCASTSS(p.Addr, alpha)
	addMasked(sums, alpha, lanes, old, to)
}

// pairs computes, in lanes 4h…4h+3 of r[0], the sums across lanes 4h…4h+3 of r[0] to r[3], or of fewer registers. It
// uses a and b.
func pairs[R reg.Register](r []R, a, b Op) {
	last := len(r) - 1
	for i := 0; i <= last; i += 2 {
		next := r[min(i+1, last)]
		VUNPCKLPS(next, r[i], a)
		VUNPCKHPS(next, r[i], b)
		VADDPS(b, a, r[i])
	}
	other := r[min(2, last&^1)]
	VUNPCKLPD(other, r[0], a)
	VUNPCKHPD(other, r[0], b)
	VADDPS(b, a, r[0])
}
