package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// gridCols returns the number of rows of w in a grid with the given number of rows of x. With one register per sum they
// fill the register file, except for one register per row of w, one for x and one for a constant. Ten loads serve 24
// multiply-adds (seven serve 12 with AVX2).
func (v *vector) gridCols(rows int) int {
	if v == avx2 {
		return 3
	}
	switch {
	case rows <= 4:
		return 6
	case rows <= 6:
		return 4
	}
	return 3
}

// gridKind is the layout of w and x in a grid.
type gridKind struct {
	elem
	split bool // elements with even index before elements with odd index
	pairs bool // products of pairs of bfloat16
}

var gridKinds = []gridKind{
	{elem: f32}, {elem: f16}, {elem: bf16, split: true}, {elem: elem{name: "Pairs", size: 2}, pairs: true},
}

// step returns the number of elements along k per iteration.
func (g gridKind) step(v *vector) int {
	if g.split || g.pairs {
		return 2 * v.lanes
	}
	return v.lanes
}

// grid emits the products of a few rows of x, which are packed side by side, with a few rows of w, read in place. A
// register of bfloat16 has the elements with odd index in its upper halves and the ones with even index in its lower
// halves. With x in the same order, one shift or one mask widens 16 of them; the natural order would need an extra
// shuffle.
//
// Several rows at a time are more streams than the hardware prefetcher follows across pages, so the kernel prefetches
// in memory order. It prefetches only into the second-level cache, which is near enough (Zen 4: twice the bandwidth of
// no prefetch; into the first level it is slower than none).
func grid(v *vector, rows int, g gridKind) {
	cols := v.gridCols(rows)
	text(sprintf("grid%s%sx%d", v.name, g.name, rows),
		"func(k int, x *float32, w *byte, ldw int, c *float32, ldc, skip, ahead int, alpha float32)",
		sprintf("c[i·ldc+4j] += alpha·x[i]·w[j·ldw:], strides in bytes, i < %d, skip ≤ j < %d, x as panel%s%s has left it. What is ahead bytes behind w is fetched, as much as is read.", rows, cols, v.name, g.panel()))
	param("k", reg.RCX)
	param("x", reg.RSI)
	param("w", reg.RDX)
	param("ldw", reg.R9)
	param("c", reg.RDI)
	param("ldc", reg.R8)
	LEAQ(Mem{Base: reg.R9, Index: reg.R9, Scale: 2}, reg.R10) // 3·ldw
	if cols > 4 {
		LEAQ(Mem{Base: reg.RDX, Index: reg.R9, Scale: 4}, reg.R11)
	}
	param("ahead", reg.R12)
	ADDQ(reg.RDX, reg.R12)
	s := &gridState{vector: v, gridKind: g, rows: rows, cols: cols, last: &edge{vector: v, elem: g.elem, n: reg.RCX, lanes: reg.RBX, last: reg.R11}}
	for _, z := range v.r[:rows*cols] {
		zero(z)
	}
	if g.split && v == avx512 {
		MOVL(U32(0xffff0000), reg.EAX)
		VPBROADCASTD(reg.EAX, s.constant())
	}
	SUBQ(I32(int32(g.step(v))), reg.RCX)
	JLT(LabelRef("rest"))
	align()
	Label("loop")
	s.step(false)
	ADDQ(I32(int32(g.step(v)*g.size)), reg.RDX)
	ADDQ(I32(int32(cols*g.step(v)*g.size)), reg.R12)
	if cols > 4 {
		ADDQ(I32(int32(g.step(v)*g.size)), reg.R11)
	}
	ADDQ(I32(int32(s.turn())), reg.RSI)
	SUBQ(I32(int32(g.step(v))), reg.RCX)
	JGE(LabelRef("loop"))
	Label("rest")
	ADDQ(I32(int32(g.step(v))), reg.RCX)
	JZ(LabelRef("fold"))
	if v == avx512 {
		MOVQ(I32(-1), reg.RAX)
		BZHIQ(reg.RCX, reg.RAX, reg.RAX)
		KMOVD(reg.EAX, reg.K1)
	} else {
		s.last.begin()
	}
	s.step(true)
	Label("fold")
	s.fold()
	VZEROUPPER()
	RET()
}

// panel returns the name of the layout of x.
func (g gridKind) panel() string {
	switch {
	case g.pairs:
		return "Pairs"
	case g.split:
		return "Split"
	}
	return "Plain"
}

// gridState holds the registers of a grid.
type gridState struct {
	*vector
	gridKind
	rows, cols int
	last       *edge // for AVX2
}

func (s *gridState) sum(i int) []reg.VecPhysical { return s.r[i*s.cols : (i+1)*s.cols] }
func (s *gridState) wide(j int) reg.VecPhysical  { return s.r[s.rows*s.cols+j] }
func (s *gridState) x() reg.VecPhysical          { return s.r[s.rows*s.cols+s.cols] }
func (s *gridState) constant() reg.VecPhysical   { return s.r[len(s.r)-1] }

// turn returns the number of bytes of the panel of x per iteration.
func (s *gridState) turn() int {
	if s.split {
		return 2 * s.rows * s.bytes()
	}
	return s.rows * s.bytes()
}

// row returns the address of row j of w.
func (s *gridState) row(j int) Mem {
	return rowAt([]reg.GPPhysical{reg.RDX, reg.R11}, reg.R9, reg.R10, j, 0)
}

// step emits one iteration of the loop. The last iteration reads as many elements as the mask K1 or the edge selects.
func (s *gridState) step(last bool) {
	const line = 64
	for i := 0; !last && i < s.cols*s.gridKind.step(s.vector)*s.size; i += line {
		PREFETCHT1(Mem{Base: reg.R12, Disp: i})
	}
	for half := range s.turn() / (s.rows * s.bytes()) {
		if s.vector == avx2 && half == 1 && !last {
			VMOVUPS(s.upper, s.x())
		}
		for j := range s.cols {
			s.load(j, half, last)
		}
		for i := range s.rows {
			VMOVUPS(Mem{Base: reg.RSI, Disp: (half*s.rows + i) * s.bytes()}, s.x())
			for j, z := range s.sum(i) {
				if s.pairs {
					dotPairs(s.x(), s.wide(j), z)
				} else {
					VFMADD231PS(s.x(), s.wide(j), z)
				}
			}
		}
	}
}

// load emits the load of row j of w; for split ones, the even elements and then the odd ones.
func (s *gridState) load(j, half int, last bool) {
	src, dst := s.row(j), s.wide(j)
	if last && s.vector == avx2 {
		s.loadEdge(src, dst, half)
		return
	}
	switch {
	case !s.split && !s.pairs && last:
		s.elem.load(src, dst, reg.K1)
		return
	case !s.split && !s.pairs:
		s.elem.load(src, dst)
		return
	case last:
		VMOVDQU16_Z(src, reg.K1, dst)
	case s.pairs:
		VMOVUPS(src, dst)
	}
	switch {
	case !s.split:
	case s.vector == avx2 && half == 0:
		VMOVUPS(src, dst)
		VPSLLD(U8(16), dst, dst)
	case s.vector == avx2:
		VPAND(src, s.x(), dst)
	case half == 0 && last:
		VPSLLD(U8(16), dst, dst)
	case half == 0:
		VPSLLD(U8(16), src, dst)
	case last:
		VPANDD(dst, s.constant(), dst)
	default:
		VPANDD(src, s.constant(), dst)
	}
}

// loadEdge emits the load of the last elements with AVX2.
func (s *gridState) loadEdge(src Mem, dst reg.VecPhysical, half int) {
	LEAQ(src, reg.RAX)
	src = Mem{Base: reg.RAX}
	if !s.split {
		s.last.load(src, s.x(), dst)
		return
	}
	s.last.words(src, s.x(), dst)
	if half == 0 {
		VPSLLD(U8(16), dst, dst)
	} else {
		VPAND(s.upper, dst, dst)
	}
}

// fold emits the sums across the registers, and adds them to C. The order of the additions is the same for every row
// and column.
func (s *gridState) fold() {
	free := s.r[s.rows*s.cols:]
	param("skip", reg.RCX)
	mask := s.r[len(s.r)-1]
	if s.vector == avx512 {
		MOVQ(I32(-1), reg.RAX)
		SHLQ(reg.CL, reg.RAX)
		ANDQ(U32(1<<s.cols-1), reg.RAX)
		KMOVW(reg.EAX, reg.K1)
	} else {
		s.skip256(mask, free[0])
	}
	for i := range s.rows {
		s.addFolded(foldRow(s.vector, s.sum(i), free), mask, free, Mem{Base: reg.RDI})
		if i < s.rows-1 {
			ADDQ(reg.R8, reg.RDI)
		}
	}
}

// skip256 makes the sign of lanes RCX ≤ j < cols negative.
func (s *gridState) skip256(mask, tmp reg.VecPhysical) {
	MOVQ(I32(int32(s.cols)), reg.RAX)
	VMOVD(reg.ECX, mask.AsX())
	VPBROADCASTD(mask.AsX(), mask)
	VPCMPGTD(s.iota, mask, mask) // less than skip
	VMOVD(reg.EAX, tmp.AsX())
	VPBROADCASTD(tmp.AsX(), tmp)
	VPCMPGTD(s.iota, tmp, tmp) // less than cols
	VPANDN(tmp, mask, mask)
}

// panel emits the packing of one row of x for grids: a register of elements is stored every step bytes, the last one
// with zeros from k on.
func panel(v *vector, g gridKind) {
	doc := map[string]string{
		"Plain": "in their order", "Split": "those with even numbers before those with odd ones", "Pairs": "rounded to bfloat16",
	}[g.panel()]
	text(sprintf("panel%s%s", v.name, g.panel()), "func(dst *float32, step int, x *float32, k int)",
		sprintf("dst[t·step:] = x[%d·t:], %d elements at a time, %s.", g.step(v), g.step(v), doc))
	param("dst", reg.RDI)
	param("step", reg.R8)
	param("x", reg.RSI)
	param("k", reg.RCX)
	if g.split && v == avx512 {
		VMOVDQU64(v.evens, reg.Z30)
		VMOVDQU64(v.odds, reg.Z31)
	}
	x := v.r[:g.step(v)/v.lanes]
	masks := []reg.OpmaskPhysical{reg.K1, reg.K2}[:len(x)]
	last := edge{vector: v, elem: f32, n: reg.RCX, lanes: reg.RAX}
	write := func(isLast bool) {
		for j, z := range x {
			src := Mem{Base: reg.RSI, Disp: j * v.bytes()}
			switch {
			case !isLast:
				f32.load(src, z)
			case v == avx512:
				f32.load(src, z, masks[j])
			}
		}
		if isLast && v == avx2 {
			last.load(Mem{Base: reg.RSI}, v.r[2], x...)
		}
		switch {
		case g.pairs:
			narrowPairs(v.r[0], v.r[1], v.r[0])
		case g.split && v == avx512:
			VMOVUPS(v.r[0], v.r[2])
			VPERMT2PS(v.r[1], reg.Z30, v.r[0])
			VPERMT2PS(v.r[1], reg.Z31, v.r[2])
			VMOVUPS(v.r[2], Mem{Base: reg.RDI, Index: reg.R8, Scale: 1})
		case g.split:
			VSHUFPS(U8(0xdd), v.r[1], v.r[0], v.r[2])
			VSHUFPS(U8(0x88), v.r[1], v.r[0], v.r[0])
			VPERMPD(U8(0xd8), v.r[2], v.r[2])
			VPERMPD(U8(0xd8), v.r[0], v.r[0])
			VMOVUPS(v.r[2], Mem{Base: reg.RDI, Index: reg.R8, Scale: 1})
		}
		VMOVUPS(v.r[0], Mem{Base: reg.RDI})
	}
	SUBQ(I32(int32(g.step(v))), reg.RCX)
	JLT(LabelRef("rest"))
	Label("loop")
	write(false)
	ADDQ(I32(int32(4*g.step(v))), reg.RSI)
	if g.split {
		LEAQ(Mem{Base: reg.RDI, Index: reg.R8, Scale: 2}, reg.RDI)
	} else {
		ADDQ(reg.R8, reg.RDI)
	}
	SUBQ(I32(int32(g.step(v))), reg.RCX)
	JGE(LabelRef("loop"))
	Label("rest")
	ADDQ(I32(int32(g.step(v))), reg.RCX)
	JZ(LabelRef("done"))
	if v == avx512 {
		mask512(reg.RCX, reg.RAX, masks...)
	} else {
		last.begin()
	}
	write(true)
	Label("done")
	VZEROUPPER()
	RET()
}
