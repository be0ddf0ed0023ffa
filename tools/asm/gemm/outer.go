package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// outers emits the kernels that read a long operand in place, row by row. They are for sums of outer products, for few
// columns and for few rows.
func outers() {
	avx512.zips()
	avx2.counts()
	avx2.edgeMasks()
	for rows := 1; rows <= avx2.outerRows; rows++ {
		outer(avx2, outerShape{rows: rows, vecs: 2})
		outer(avx2, outerShape{rows: rows, vecs: 1, edge: true})
	}
	for rows := 1; rows <= avx512.outerRows; rows++ {
		vecs := avx512.outerVecs(rows)
		outer(avx512, outerShape{rows: rows, vecs: vecs, edge: true})
		outer(avx512, outerShape{rows: rows, vecs: vecs, edge: true, pairs: true})
	}
	for _, v := range []*vector{avx512, avx2} {
		for _, s := range v.fanShapes() {
			fan(v, s)
		}
	}
	zip512()
	for _, s := range avx2.fanShapes()[:2] {
		zip256(s)
	}
	for _, v := range []*vector{avx512, avx2} {
		for _, e := range []elem{f32, f16, bf16} {
			for rows := 1; rows <= v.directRows; rows++ {
				direct(v, rows, e, false)
				if v == avx2 {
					direct(v, rows, e, true)
				}
			}
		}
	}
}

// outerShape is the shape of an outer kernel: rows of a, and registers of b per row, whole ones or up to an edge.
type outerShape struct {
	rows, vecs  int
	edge, pairs bool
}

// outerVecs returns the width, in registers, of the kernel for sums of outer products: enough sums to hide the latency
// of the multiply-adds.
func (v *vector) outerVecs(rows int) int {
	if rows > len(v.r)/4 {
		return 1
	}
	return 2
}

// outer emits C += alpha·a·b for short columns of a and long rows of b. The rows are read in place, two at a time;
// products of bfloat16 make pairs of them. (With AVX2, the registers hold 6 rows of 16 sums, a whole cache line of b:
// rows at a power-of-two distance evict each other from the first-level cache before the other half of the line is
// used.) For each byte of b the kernel prefetches another one, spread evenly among the products. A burst of prefetches
// would fill the memory buffers and stall everything else.
func outer(v *vector, s outerShape) {
	rows, vecs, pairs := s.rows, s.vecs, s.pairs
	name, what, cols := "", "", "="
	switch {
	case v == avx512:
		cols = "≤"
	case s.edge:
		name, cols = "Edge", "≤"
	}
	if pairs {
		name, what = "Pairs", ", both rounded to bfloat16: words of a are the pairs a[i,2t], a[i,2t+1]"
	}
	text(sprintf("outer%s%sx%d", name, v.name, rows),
		"func(k int, a *float32, step int, b *float32, ldb, ahead, apart int, c *float32, ldc, cols int, alpha float32)",
		sprintf("C[%d,cols] += alpha·a·b%s, word t of row i of a at 4i+t·step; fetches half as much as it reads of b from ahead behind it on, and half from apart behind that; strides in bytes, cols %s %d.", rows, what, cols, vecs*v.lanes))
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
	first, second := v.r[:vecs], v.r[vecs:2*vecs]
	one, order := v.r[2*vecs], v.r[2*vecs+1]
	shared := v == avx2 // both rows of b use the same registers, one after the other
	if shared {
		second, one = first, v.r[vecs]
	}
	var masks []reg.Register
	if s.edge {
		param("cols", reg.R13)
		masks = v.masksOf(reg.R13, first[0], v.r[vecs+1:2*vecs+1])
	}
	sum := func(i, j int) reg.VecPhysical { return v.r[len(v.r)-rows*vecs+i*vecs+j] }
	for i := range rows {
		for j := range vecs {
			zero(sum(i, j))
		}
	}
	if pairs {
		VMOVDQU64(v.zip, order)
	}
	load := func(m Mem, j int, z reg.VecPhysical) {
		if len(masks) > 0 {
			loadMasked(m, masks[j], z)
		} else {
			VMOVUPS(m, z)
		}
	}
	// multiply adds the products of a word of each row of a with the registers b.
	multiply := func(b []reg.VecPhysical) {
		for i := range rows {
			word := Mem{Base: reg.RSI, Disp: 4 * i}
			switch {
			case vecs == 1 && pairs:
				dotWord(i, b[0], sum(i, 0))
			case vecs == 1 && v == avx512:
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
	loadSecond := func(j int) { load(Mem{Base: reg.RBX, Disp: j * v.bytes()}, j, second[j]) }
	step := func(odd bool) {
		for j := range vecs {
			disp := j * v.bytes()
			load(Mem{Base: reg.RDX, Disp: disp}, j, first[j])
			if !odd && disp%64 == 0 {
				PREFETCHT1(Mem{Base: reg.RAX, Disp: disp})
				PREFETCHT1(Mem{Base: reg.RAX, Index: reg.R8, Scale: 1, Disp: disp})
			}
			switch {
			case shared:
			case odd:
				zero(second[j])
			default:
				loadSecond(j)
			}
			if pairs {
				narrowPairs(first[j], second[j], first[j])
				VPERMW(first[j], order, first[j])
			}
		}
		multiply(first)
		if pairs || odd {
			return
		}
		for j := 0; shared && j < vecs; j++ {
			loadSecond(j)
		}
		multiply(second)
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
