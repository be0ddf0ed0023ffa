package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

const (
	fanRows  = 8 // of x: as many a power of two apart as leave the nearest cache room for w
	fanSteps = 4 // at once
)

// fanShape is a number of columns: registers of w for each step along k, of so many
// elements each. Fewer columns than fill two registers have more elements side by
// side there, so that every load of x serves two multiply-adds.
type fanShape struct{ cols, vecs, each int }

var fanShapes = []fanShape{{8, 2, 4}, {16, 2, 2}, {32, 2, 1}, {48, 3, 1}}

// fan emits the products of a few rows of x, where they lie, with a few columns
// of w: one, two or four elements of x are spread over a register and multiplied with
// all columns. At most a few sums are taken across a register, not all as in dotBlock, and
// so a run of k may be short. As many bytes as it reads of x it fetches of what comes
// next, front to back.
func fan(s fanShape) {
	v := avx512
	text(sprintf("fan512x%d", s.cols),
		"func(k int, x *float32, ldx int, w *float32, c *float32, ldc, cols, ahead int, alpha float32)",
		sprintf("c[i·ldc+j] += alpha·sum over t of x[i·ldx+t]·w[t,j], strides of x and c in bytes, i < %d, j < cols ≤ %d; %d elements t side by side in w, zeroes beyond k: for 8 and 16 columns as zip makes it of these rows. Fetches as much as it reads of x, from ahead bytes behind x on.",
			fanRows, s.cols, s.each))
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

	free := len(v.r) - fanRows*s.vecs
	sum := func(i, j int) reg.VecPhysical { return v.r[free+i*s.vecs+j] }
	for _, z := range v.r[free:] {
		zero(z)
	}
	w := v.r[:s.vecs]
	step := func(t int, spread func(i int, z reg.VecPhysical)) {
		for j := range w {
			VMOVUPS(Mem{Base: reg.RDX, Disp: (t*s.vecs + j) * v.bytes()}, w[j])
		}
		for i := range fanRows {
			one := v.r[s.vecs+i%min(free-s.vecs, 4)]
			spread(i, one)
			for j := range w {
				VFMADD231PS(one, w[j], sum(i, j))
			}
		}
	}
	bases := []reg.GPPhysical{reg.RSI, reg.RAX}
	x := func(i, disp int) Mem { return rowAt(bases, reg.R8, reg.R12, i, disp) }
	whole := func(t int) func(i int, z reg.VecPhysical) {
		load := map[int]func(...Op){1: VBROADCASTSS, 2: VBROADCASTSD, 4: VBROADCASTF32X4}[s.each]
		return func(i int, z reg.VecPhysical) { load(x(i, 4*s.each*t), z) }
	}
	advance := func(steps int) {
		for _, p := range bases {
			ADDQ(I32(int32(4*s.each*steps)), p)
		}
		ADDQ(I32(int32(steps*s.vecs*v.bytes())), reg.RDX)
	}
	SUBQ(I32(int32(fanSteps*s.each)), reg.RCX)
	JLT(LabelRef("rest"))
	align()
	Label("loop")
	lines := 4 * fanRows * fanSteps * s.each / 64
	for t := range fanSteps {
		for n := t * lines / fanSteps; n < (t+1)*lines/fanSteps; n++ {
			PREFETCHT1(Mem{Base: reg.R13, Disp: 64 * n})
		}
		step(t, whole(t))
	}
	advance(fanSteps)
	ADDQ(I32(int32(64*lines)), reg.R13)
	SUBQ(I32(int32(fanSteps*s.each)), reg.RCX)
	JGE(LabelRef("loop"))
	Label("rest")
	ADDQ(I32(int32(fanSteps*s.each)), reg.RCX)
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
		mask512(reg.RCX, reg.RBX, reg.K1)
		step(0, func(i int, z reg.VecPhysical) {
			VMOVUPS_Z(x(i, 0), reg.K1, z)
			if s.each == 2 {
				VBROADCASTSD(z.AsX(), z)
			} else {
				VSHUFF32X4(U8(0), z, z, z)
			}
		})
		Label("add")
	}
	if s.each == 4 {
		MOVL(U32(0x5555), reg.EBX) // of each two lanes the first
		KMOVW(reg.EBX, reg.K1)
	}
	for i := range fanRows {
		s.fold(sum(i, 0), sum(i, 1), v.r[0])
	}
	vecs := max(1, s.cols/v.lanes)
	masks := []reg.OpmaskPhysical{reg.K1, reg.K2, reg.K3}[:vecs]
	param("cols", reg.R9)
	mask512(reg.R9, reg.RBX, masks...)
	addSums(v, fanRows, vecs, sum, masks)
	VZEROUPPER()
	RET()
}

// fold leaves in a the sums of elements side by side of a row, those of column j in
// lane j. With four of them K1 is every other lane.
func (s fanShape) fold(a, b, tmp reg.VecPhysical) {
	if s.each == 1 {
		return
	}
	VSHUFPS(U8(0x88), b, a, tmp)
	VSHUFPS(U8(0xdd), b, a, a)
	VADDPS(tmp, a, a)
	if s.each == 4 {
		VSHUFPS(U8(0xb1), a, a, tmp)
		VADDPS(tmp, a, a)
		VCOMPRESSPS_Z(a, reg.K1, a)
	}
}

// zip emits what makes columns ready for fan, where they lie: of each two registers
// the elements that two lists of indices name, 16 and more in the second register.
func zip() {
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
