package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// outerMost is the most rows of the kernel for sums of outer products.
const outerMost = 16

// outerVecs is its width in registers: 16 sums, if there are so many, hide the
// latency of the multiply-adds.
func outerVecs(rows int) int {
	if rows > 8 {
		return 1
	}
	return 2
}

// outer emits C += alpha·a·b, the columns of a being short and the rows of b
// long and where they lie in memory: two of these at a time, of which products
// of bfloat16 make pairs. For as many bytes as it reads of b it fetches others,
// evenly among the products: in one go they would fill the buffers that wait for
// memory, and stop everything else.
func outer(rows int, pairs bool) {
	v, vecs := avx512, outerVecs(rows)
	name, what := "", ""
	if pairs {
		name, what = "Pairs", ", both rounded to bfloat16: words of a are the pairs a[i,2t], a[i,2t+1]"
	}
	text(sprintf("outer%s512x%d", name, rows),
		"func(k int, a *float32, step int, b *float32, ldb, ahead, apart int, c *float32, ldc, cols int, alpha float32)",
		sprintf("C[%d,cols] += alpha·a·b%s, word t of row i of a at 4i+t·step; fetches half as much as it reads of b from ahead behind it on, and half from apart behind that; strides in bytes, cols ≤ %d.", rows, what, vecs*v.lanes))
	param("k", reg.RCX)
	param("a", reg.RSI)
	param("step", reg.R9)
	param("b", reg.RDX)
	param("ldb", reg.R10)
	param("ahead", reg.RAX)
	ADDQ(reg.RDX, reg.RAX)
	param("apart", reg.R8)
	param("c", reg.RDI)
	param("ldc", reg.R11)
	param("cols", reg.R13)
	masks := []reg.OpmaskPhysical{reg.K1, reg.K2}[:vecs]
	mask512(reg.R13, reg.RBX, masks...)
	sum := func(i, j int) reg.VecPhysical { return v.r[len(v.r)-rows*vecs+i*vecs+j] }
	for i := range rows {
		for j := range vecs {
			zero(sum(i, j))
		}
	}
	first, second := v.r[:vecs], v.r[vecs:2*vecs]
	order, one := v.r[2*vecs], v.r[2*vecs+1]
	if pairs {
		VMOVDQU64(v.zip, order)
	}
	// multiply adds the products of a word of each row of a, and of the
	// registers b.
	multiply := func(b []reg.VecPhysical) {
		for i := range rows {
			word := Mem{Base: reg.RSI, Disp: 4 * i}
			switch {
			case vecs == 1 && pairs:
				dotWord(i, b[0], sum(i, 0))
			case vecs == 1:
				VFMADD231PS_BCST(word, b[0], sum(i, 0))
			default:
				VBROADCASTSS(word, one)
				for j, z := range b {
					if pairs {
						dotPairs(one, z, sum(i, j))
					} else {
						VFMADD231PS(one, z, sum(i, j))
					}
				}
			}
		}
		ADDQ(reg.R9, reg.RSI)
	}
	step := func(odd bool) {
		for j := range vecs {
			disp := j * v.bytes()
			VMOVUPS_Z(Mem{Base: reg.RDX, Disp: disp}, masks[j], first[j])
			if odd {
				zero(second[j])
			} else {
				PREFETCHT1(Mem{Base: reg.RAX, Disp: disp})
				PREFETCHT1(Mem{Base: reg.RAX, Index: reg.R8, Scale: 1, Disp: disp})
				VMOVUPS_Z(Mem{Base: reg.RBX, Disp: disp}, masks[j], second[j])
			}
			if pairs {
				narrowPairs(first[j], second[j], first[j])
				VPERMW(first[j], order, first[j])
			}
		}
		multiply(first)
		if !pairs && !odd {
			multiply(second)
		}
	}
	LEAQ(Mem{Base: reg.RDX, Index: reg.R10, Scale: 1}, reg.RBX)
	LEAQ(Mem{Base: reg.R10, Index: reg.R10, Scale: 1}, reg.R12)
	SUBQ(I32(2), reg.RCX)
	JLT(LabelRef("tail"))
	align()
	Label("loop")
	step(false)
	ADDQ(reg.R12, reg.RDX)
	ADDQ(reg.R12, reg.RBX)
	ADDQ(I32(int32(vecs*v.bytes())), reg.RAX)
	SUBQ(I32(2), reg.RCX)
	JGE(LabelRef("loop"))
	Label("tail")
	ADDQ(I32(2), reg.RCX)
	JZ(LabelRef("add"))
	step(true)
	Label("add")
	addSums(v, rows, vecs, sum, masks)
	VZEROUPPER()
	RET()
}
