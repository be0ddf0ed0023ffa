package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// directVecs returns the width of the direct kernel for a number of rows, in registers: enough sums to hide the latency
// of the multiply-adds.
func (v *vector) directVecs(rows int) int {
	if rows <= len(v.r)/8 {
		return 4
	}
	return 2
}

// directEdge is the width of the AVX2 kernels that have an edge.
const directEdge = 2

// direct emits C += alpha·a·b for few rows, with b read in place, [k] rows of up to directVecs registers, or of less
// than directEdge.
func direct(v *vector, rows int, e elem, edged bool) {
	vecs, name, relation := v.directVecs(rows), "", "="
	switch {
	case v == avx512:
		relation = "≤"
	case edged:
		vecs, name, relation = directEdge, "Edge", "≤"
	}
	doc := sprintf("cols %s %d", relation, vecs*v.lanes)
	text(sprintf("direct%s%s%sx%d", name, v.name, e.name, rows),
		"func(k int, a *float32, arow, acol int, b *byte, ldb int, c *float32, ldc, cols int, alpha float32)",
		sprintf("C[%d,cols] += alpha·a·b, a[i,t] at i·arow+t·acol, strides in bytes, %s.", rows, doc))
	param("k", reg.RCX)
	param("a", reg.RSI)
	param("arow", reg.R8)
	param("acol", reg.R9)
	param("b", reg.RDX)
	param("ldb", reg.R10)
	param("c", reg.RDI)
	param("ldc", reg.R11)
	LEAQ(Mem{Base: reg.R8, Index: reg.R8, Scale: 2}, reg.R12) // 3·arow
	LEAQ(Mem{Base: reg.RSI, Index: reg.R8, Scale: 4}, reg.RAX)

	a := func(i int) Mem { return rowAt([]reg.GPPhysical{reg.RSI, reg.RAX}, reg.R8, reg.R12, i, 0) }
	sum := func(i, j int) reg.VecPhysical { return v.r[len(v.r)-rows*vecs+i*vecs+j] }
	free := len(v.r) - (rows+1)*vecs
	var masks []reg.OpmaskPhysical
	last := edge{vector: v, elem: e, n: reg.R13, lanes: reg.RBX, last: reg.R15}
	switch {
	case v == avx512:
		masks = []reg.OpmaskPhysical{reg.K1, reg.K2, reg.K3, reg.K4}[:vecs]
		param("cols", reg.R13)
		mask512(reg.R13, reg.RBX, masks...)
	case edged:
		param("cols", last.n)
		last.begin()
	}
	for i := range rows {
		for j := range vecs {
			zero(sum(i, j))
		}
	}
	align()
	Label("loop")
	for j := range vecs {
		b := Mem{Base: reg.RDX, Disp: j * v.lanes * e.size}
		fetchAhead(reg.RDX, reg.R10, b.Disp)
		switch {
		case len(masks) > 0:
			e.load(b, v.r[j], masks[j])
		case !edged:
			e.load(b, v.r[j])
		}
	}
	if edged {
		last.load(Mem{Base: reg.RDX}, v.r[vecs], v.r[:vecs]...)
	}
	for i := range rows {
		z := v.r[vecs+i%min(free, 4)]
		VBROADCASTSS(a(i), z)
		for j := range vecs {
			VFMADD231PS(z, v.r[j], sum(i, j))
		}
	}
	ADDQ(reg.R9, reg.RSI)
	if rows > 4 {
		ADDQ(reg.R9, reg.RAX)
	}
	ADDQ(reg.R10, reg.RDX)
	DECQ(reg.RCX)
	JNZ(LabelRef("loop"))

	if edged {
		addSums(v, rows, vecs, sum, v.masksOf(reg.R13, v.r[0], v.r[vecs:2*vecs]))
	} else {
		addSums(v, rows, vecs, sum, masks)
	}
	VZEROUPPER()
	RET()
}

// addSums emits C += alpha·sum, with a mask for each register of a row, or for whole rows. The rows of C start at RDI
// with a stride of R11 bytes. It uses the first two registers.
func addSums[M reg.Register](v *vector, rows, vecs int, sum func(i, j int) reg.VecPhysical, masks []M) {
	alpha, old := v.r[0], v.r[1]
	p, _ := Param("alpha").Resolve()
	VBROADCASTSS(p.Addr, alpha)
	for i := range rows {
		for j := range vecs {
			c := Mem{Base: reg.RDI, Disp: j * v.bytes()}
			if len(masks) > 0 {
				addMasked(sum(i, j), alpha, masks[j], old, c)
				continue
			}
			VMOVUPS(c, old)
			VFMADD231PS(sum(i, j), alpha, old)
			VMOVUPS(old, c)
		}
		if i < rows-1 {
			ADDQ(reg.R11, reg.RDI)
		}
	}
}
