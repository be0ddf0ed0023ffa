package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

const (
	fanRows = 8 // of x: as many a power of two apart as leave the nearest cache room for w
	fanVecs = 3 // registers of columns at most
	fanStep = 4 // elements along k at once
)

// fan emits the products of a few rows of x, where they lie, with a few columns
// of w: each element of x is spread over a register and multiplied with all of
// them. No sums are taken across a register, as in dotBlock, and so a run of k may
// be short. As many bytes as it reads of x it fetches of what comes next, front to
// back.
func fan(v *vector, vecs int) {
	text(sprintf("fan%sx%d", v.name, vecs),
		"func(k int, x *float32, ldx int, w *float32, c *float32, ldc, cols, ahead int, alpha float32)",
		sprintf("c[i·ldc+j] += alpha·sum over t of x[i·ldx+t]·w[t·%d+j], strides of x and c in bytes, i < %d, j < cols ≤ %d; fetches as much as it reads of x, from ahead bytes behind x on.",
			vecs*v.lanes, fanRows, vecs*v.lanes))
	param("k", reg.RCX)
	param("x", reg.RSI)
	param("ldx", reg.R8)
	param("w", reg.RDX)
	param("c", reg.RDI)
	param("ldc", reg.R11)
	param("ahead", reg.R13)
	ADDQ(reg.RSI, reg.R13)
	LEAQ(Mem{Base: reg.R8, Index: reg.R8, Scale: 2}, reg.R12) // 3·ldx
	LEAQ(Mem{Base: reg.RSI, Index: reg.R8, Scale: 4}, reg.RAX)
	masks := []reg.OpmaskPhysical{reg.K1, reg.K2, reg.K3}[:vecs]
	param("cols", reg.R9)
	mask512(reg.R9, reg.RBX, masks...)

	// One register of columns has two sums of every row, in turn: with fewer the
	// multiply-adds would wait for each other.
	parts := 1
	if vecs == 1 {
		parts = 2
	}
	free := len(v.r) - fanRows*vecs*parts
	sum := func(part, i, j int) reg.VecPhysical { return v.r[free+(part*fanRows+i)*vecs+j] }
	for _, z := range v.r[free:] {
		zero(z)
	}
	x := func(i, disp int) Mem {
		base := []reg.GPPhysical{reg.RSI, reg.RAX}[i/4]
		return []Mem{
			{Base: base, Disp: disp}, {Base: base, Index: reg.R8, Scale: 1, Disp: disp},
			{Base: base, Index: reg.R8, Scale: 2, Disp: disp}, {Base: base, Index: reg.R12, Scale: 1, Disp: disp},
		}[i%4]
	}
	step := func(t int) {
		w := v.r[:vecs]
		if vecs == 1 {
			w = v.r[t%2 : t%2+1]
		}
		for j := range vecs {
			VMOVUPS(Mem{Base: reg.RDX, Disp: (t*vecs + j) * v.bytes()}, w[j])
		}
		for i := range fanRows {
			if vecs == 1 {
				VFMADD231PS_BCST(x(i, 4*t), w[0], sum(t%parts, i, 0))
				continue
			}
			one := v.r[vecs+i%min(free-vecs, 4)]
			VBROADCASTSS(x(i, 4*t), one)
			for j := range vecs {
				VFMADD231PS(one, w[j], sum(0, i, j))
			}
		}
	}
	advance := func(steps int) {
		for _, p := range []reg.GPPhysical{reg.RSI, reg.RAX} {
			ADDQ(I32(int32(4*steps)), p)
		}
		ADDQ(I32(int32(steps*vecs*v.bytes())), reg.RDX)
	}
	SUBQ(I32(fanStep), reg.RCX)
	JLT(LabelRef("rest"))
	align()
	Label("loop")
	for t := range fanStep {
		if n := 4 * fanRows * t; n%64 == 0 {
			PREFETCHT1(Mem{Base: reg.R13, Disp: n})
		}
		step(t)
	}
	advance(fanStep)
	ADDQ(I32(4*fanRows*fanStep), reg.R13)
	SUBQ(I32(fanStep), reg.RCX)
	JGE(LabelRef("loop"))
	Label("rest")
	ADDQ(I32(fanStep), reg.RCX)
	JZ(LabelRef("add"))
	Label("one")
	step(0)
	advance(1)
	DECQ(reg.RCX)
	JNZ(LabelRef("one"))
	Label("add")
	if parts == 2 {
		for i := range fanRows {
			VADDPS(sum(1, i, 0), sum(0, i, 0), sum(0, i, 0))
		}
	}
	addSums(v, fanRows, vecs, func(i, j int) reg.VecPhysical { return sum(0, i, j) }, masks)
	VZEROUPPER()
	RET()
}
