package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// fanShape is a shape of fan: its number of columns, the registers of w per step along k, and the elements of a column
// per register. If there are fewer columns than two registers hold, several elements of each are side by side, so that
// every load of x serves two multiply-adds.
type fanShape struct{ cols, vecs, each int }

// fanShapes returns the shapes of v: as wide as the registers for the sums of fanRows allow.
func (v *vector) fanShapes() []fanShape {
	shapes := []fanShape{{v.lanes / 2, 2, 4}, {v.lanes, 2, 2}, {2 * v.lanes, 2, 1}}
	if v == avx512 {
		shapes = append(shapes, fanShape{3 * v.lanes, 3, 1})
	}
	return shapes
}

// fanSteps returns the number of steps along k per iteration, which cover whole cache lines of x.
func (v *vector) fanSteps(s fanShape) int {
	if v == avx2 {
		return 8 / s.each
	}
	return 4
}

// fan emits the products of a few rows of x, read in place, with a few columns of w: one, two or four elements of x are
// broadcast over a register and multiplied with all columns. Few sums are taken across a register, in contrast to
// dotBlock, so a run of k may be short. For each byte of x that it reads, it prefetches one byte of the following part,
// sequentially.
func fan(v *vector, s fanShape) {
	rows, steps := v.fanRows, v.fanSteps(s)
	text(sprintf("fan%sx%d", v.name, s.cols),
		"func(k int, x *float32, ldx int, w *float32, c *float32, ldc, cols, ahead int, alpha float32)",
		sprintf("c[i·ldc+j] += alpha·sum over t of x[i·ldx+t]·w[t,j], strides of x and c in bytes, i < %d, j < cols ≤ %d; %d elements t side by side in w, zeroes beyond k: where that is more than one as zip makes it of these rows. Fetches as much as it reads of x, from ahead bytes behind x on.",
			rows, s.cols, s.each))
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

	free := len(v.r) - rows*s.vecs
	sum := func(i, j int) reg.VecPhysical { return v.r[free+i*s.vecs+j] }
	for _, z := range v.r[free:] {
		zero(z)
	}
	w, ones := v.r[:s.vecs], v.r[s.vecs:min(free, s.vecs+4)]
	step := func(t int, spread func(i int) reg.VecPhysical) {
		for j := range w {
			VMOVUPS(Mem{Base: reg.RDX, Disp: (t*s.vecs + j) * v.bytes()}, w[j])
		}
		for i := range rows {
			one := spread(i)
			for j := range w {
				VFMADD231PS(one, w[j], sum(i, j))
			}
		}
	}
	bases := []reg.GPPhysical{reg.RSI, reg.RAX}
	x := func(i, disp int) Mem { return rowAt(bases, reg.R8, reg.R12, i, disp) }
	whole := func(t int) func(i int) reg.VecPhysical {
		return func(i int) reg.VecPhysical {
			one := ones[i%len(ones)]
			v.spread(s.each, x(i, 4*s.each*t), one)
			return one
		}
	}
	advance := func(steps int) {
		for _, p := range bases {
			ADDQ(I32(int32(4*s.each*steps)), p)
		}
		ADDQ(I32(int32(steps*s.vecs*v.bytes())), reg.RDX)
	}
	SUBQ(I32(int32(steps*s.each)), reg.RCX)
	JLT(LabelRef("rest"))
	align()
	Label("loop")
	lines := 4 * rows * steps * s.each / 64
	for t := range steps {
		for n := t * lines / steps; n < (t+1)*lines/steps; n++ {
			PREFETCHT1(Mem{Base: reg.R13, Disp: 64 * n})
		}
		step(t, whole(t))
	}
	advance(steps)
	ADDQ(I32(int32(64*lines)), reg.R13)
	SUBQ(I32(int32(steps*s.each)), reg.RCX)
	JGE(LabelRef("loop"))
	Label("rest")
	ADDQ(I32(int32(steps*s.each)), reg.RCX)
	SUBQ(I32(int32(s.each)), reg.RCX)
	JLT(LabelRef("last"))
	Label("one")
	step(0, whole(0))
	advance(1)
	SUBQ(I32(int32(s.each)), reg.RCX)
	JGE(LabelRef("one"))
	Label("last")
	if s.each > 1 {
		ADDQ(I32(int32(s.each)), reg.RCX)
		JZ(LabelRef("add"))
		one, mask := ones[0], v.masksOf(reg.RCX, ones[0], ones[1:2])[0]
		step(0, func(i int) reg.VecPhysical {
			v.loadFew(x(i, 0), mask, one)
			v.spread(s.each, one, one)
			return one
		})
		Label("add")
	}
	s.folds(v, sum)
	vecs := max(1, s.cols/v.lanes)
	param("cols", reg.R9)
	addSums(v, rows, vecs, sum, v.masksOf(reg.R9, v.r[0], v.r[2:2+vecs]))
	VZEROUPPER()
	RET()
}

// spread broadcasts one, two or four floats over a register, from memory at from or from the start of that register.
func (v *vector) spread(each int, from Op, to reg.VecPhysical) {
	if r, ok := from.(reg.VecPhysical); ok {
		switch {
		case each == 2:
			VBROADCASTSD(r.AsX(), to)
		case v == avx512:
			VSHUFF32X4(U8(0), r, r, to)
		default:
			VINSERTF128(U8(1), r.AsX(), r, to)
		}
		return
	}
	switch {
	case each == 1:
		VBROADCASTSS(from, to)
	case each == 2:
		VBROADCASTSD(from, to)
	case v == avx512:
		VBROADCASTF32X4(from, to)
	default:
		VBROADCASTF128(from, to)
	}
}

// folds sums the elements that are side by side. The sum of column j is then in lane j of the first register of each
// row.
func (s fanShape) folds(v *vector, sum func(i, j int) reg.VecPhysical) {
	if s.each == 1 {
		return
	}
	if s.each == 4 && v == avx512 {
		MOVL(U32(0x5555), reg.EBX) // the first of every two lanes
		KMOVW(reg.EBX, reg.K1)
	}
	for i := range v.fanRows {
		a, b, tmp := sum(i, 0), sum(i, 1), v.r[0]
		VSHUFPS(U8(0x88), b, a, tmp)
		VSHUFPS(U8(0xdd), b, a, a)
		VADDPS(tmp, a, a)
		if s.each == 2 {
			continue
		}
		VSHUFPS(U8(0xb1), a, a, tmp)
		VADDPS(tmp, a, a)
		if v == avx512 {
			VCOMPRESSPS_Z(a, reg.K1, a)
		} else {
			VSHUFPS(U8(0x88), a, a, a)
			VPERMPD(U8(0x08), a, a)
		}
	}
}

// zip512 emits the in-place reordering of columns for fan. Two lists of indices select the new elements of every two
// registers; indices from 16 on are in the second register.
func zip512() {
	text("fanZip512", "func(w *float32, pairs int, first, second *int32)",
		"Each two registers of w become the elements of both that first and second name, 16 each.")
	param("w", reg.RDI)
	param("pairs", reg.RCX)
	param("first", reg.RSI)
	param("second", reg.RDX)
	VMOVDQU32(Mem{Base: reg.RSI}, reg.Z2)
	VMOVDQU32(Mem{Base: reg.RDX}, reg.Z3)
	Label("loop")
	VMOVUPS(Mem{Base: reg.RDI}, reg.Z0)
	VMOVUPS(Mem{Base: reg.RDI, Disp: 64}, reg.Z1)
	VMOVDQA32(reg.Z2, reg.Z4)
	VMOVDQA32(reg.Z3, reg.Z5)
	VPERMI2PS(reg.Z1, reg.Z0, reg.Z4)
	VPERMI2PS(reg.Z1, reg.Z0, reg.Z5)
	VMOVUPS(reg.Z4, Mem{Base: reg.RDI})
	VMOVUPS(reg.Z5, Mem{Base: reg.RDI, Disp: 64})
	ADDQ(I32(128), reg.RDI)
	DECQ(reg.RCX)
	JNZ(LabelRef("loop"))
	VZEROUPPER()
	RET()
}

// zip256 emits the same for AVX2: of two rows of eight columns, or of four rows of four, the elements of each column
// become adjacent.
func zip256(s fanShape) {
	text(sprintf("fanZip256x%d", s.cols), "func(w *float32, pairs int)",
		sprintf("Of each %d rows of %d columns of w the elements of a column come to lie side by side, those of columns 0, 1, 4 and 5 (of four: 0 and 2) in the first register.", s.each, s.cols))
	param("w", reg.RDI)
	param("pairs", reg.RCX)
	Label("loop")
	VMOVUPS(Mem{Base: reg.RDI}, reg.Y0)
	VMOVUPS(Mem{Base: reg.RDI, Disp: 32}, reg.Y1)
	if s.each == 4 { // rows 0 and 2 in one register, 1 and 3 in the other
		VPERM2F128(U8(0x20), reg.Y1, reg.Y0, reg.Y2)
		VPERM2F128(U8(0x31), reg.Y1, reg.Y0, reg.Y1)
		VMOVAPS(reg.Y2, reg.Y0)
	}
	VUNPCKLPS(reg.Y1, reg.Y0, reg.Y2)
	VUNPCKHPS(reg.Y1, reg.Y0, reg.Y3)
	if s.each == 4 { // two elements of two columns in each half: combine the halves
		VEXTRACTF128(U8(1), reg.Y2, reg.X4)
		VEXTRACTF128(U8(1), reg.Y3, reg.X5)
		VUNPCKLPD(reg.X4, reg.X2, reg.X0)
		VUNPCKHPD(reg.X4, reg.X2, reg.X1)
		VUNPCKLPD(reg.X5, reg.X3, reg.X2)
		VUNPCKHPD(reg.X5, reg.X3, reg.X3)
		VINSERTF128(U8(1), reg.X2, reg.Y0, reg.Y2)
		VINSERTF128(U8(1), reg.X3, reg.Y1, reg.Y3)
	}
	VMOVUPS(reg.Y2, Mem{Base: reg.RDI})
	VMOVUPS(reg.Y3, Mem{Base: reg.RDI, Disp: 32})
	ADDQ(I32(64), reg.RDI)
	DECQ(reg.RCX)
	JNZ(LabelRef("loop"))
	VZEROUPPER()
	RET()
}
