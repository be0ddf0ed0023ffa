package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// tile emits C[rows, cols] = (C if add) + bias + a·b for packed panels a [k][rows] and b [k][vecs·lanes], all sums in
// registers.
//
// For every k it loads one row of b and broadcasts each element of a: rows + vecs loads for rows·vecs multiply-adds, so
// that the multipliers are the bottleneck, not the load ports. In between it prefetches: the k words of a at a distance
// of ahead bytes, a few with every step, and towards the end the lines of C. Prefetching all of C at once would delay
// the loads of a and b, and earlier prefetches would be evicted from the first-level cache.
//
// With pairs the words of the panels are pairs of bfloat16.
func tile(v *vector, rows, vecs int, pairs bool) {
	name, of := "tile"+v.name, ""
	if pairs {
		name, of = "tilePairs"+v.name, " of pairs"
	}
	text(sprintf("%sx%d", name, rows),
		"func(k int, a, b, c *float32, ldc, cols int, add bool, bias *float32, ahead int)",
		sprintf("C[%d,cols] = (C if add) + bias + a·b%s; ldc and ahead in bytes, cols ≤ %d.", rows, of, vecs*v.lanes))
	t := &tileState{vector: v, rows: rows, vecs: vecs, pairs: pairs}
	param("k", reg.RCX)
	param("a", reg.RSI)
	param("b", reg.RDX)
	param("c", reg.RDI)
	param("ldc", reg.R8)
	t.loop()

	Load(Param("add"), reg.RAX)
	param("bias", reg.R11)
	param("cols", reg.R10)
	CMPQ(reg.R10, I32(int32(vecs*v.lanes)))
	JNE(LabelRef("edge"))
	t.store("", func(m Mem, _ int, z reg.VecPhysical) { VADDPS(m, z, z) },
		func(m Mem, _ int, z reg.VecPhysical) { VMOVUPS(m, z) },
		func(m Mem, _ int, z reg.VecPhysical) { VMOVUPS(z, m) })
	Label("edge")
	t.storeEdge()
}

// tilesBeside emits tile for several whole tiles side by side, without a bias. Returning after each tile would leave
// the caller's data in the second-level cache.
func tilesBeside(v *vector, rows, vecs int) {
	text(sprintf("tiles%sx%d", v.name, rows),
		"func(k int, a, b *float32, panel int, c *float32, ldc, tiles int, add bool, ahead int)",
		sprintf("C[%d,%d·tiles] = (C if add) + a·b, panels of b panel bytes apart, tiles > 0; ldc and ahead in bytes.", rows, vecs*v.lanes))
	t := &tileState{vector: v, rows: rows, vecs: vecs}
	b, left := reg.R15, reg.R14
	param("b", b)
	param("c", reg.RDI)
	param("ldc", reg.R8)
	param("tiles", left)
	Label("next")
	param("k", reg.RCX)
	param("a", reg.RSI)
	MOVQ(b, reg.RDX)
	t.loop()
	Load(Param("add"), reg.RAX)
	TESTB(U8(1), reg.AL)
	JZ(LabelRef("store"))
	MOVQ(reg.RDI, reg.RSI)
	t.each(reg.RSI, func(m Mem, _ int, z reg.VecPhysical) { VADDPS(m, z, z) })
	Label("store")
	MOVQ(reg.RDI, reg.RSI)
	t.each(reg.RSI, func(m Mem, _ int, z reg.VecPhysical) { VMOVUPS(z, m) })
	ADDQ(I32(int32(vecs*v.bytes())), reg.RDI)
	p, _ := Param("panel").Resolve()
	ADDQ(p.Addr, b)
	DECQ(left)
	JNZ(LabelRef("next"))
	VZEROUPPER()
	RET()
}

// tileState holds the registers of a tile.
type tileState struct {
	*vector
	rows, vecs int
	pairs      bool
}

// sum returns the accumulator of row i, vector j.
func (t *tileState) sum(i, j int) reg.VecPhysical {
	return t.r[len(t.r)-t.rows*t.vecs+i*t.vecs+j]
}

// free returns the number of registers that hold neither sums nor b.
func (t *tileState) free() int { return len(t.r) - (t.rows+1)*t.vecs }

// loop clears the sums and emits the loop over k.
func (t *tileState) loop() {
	for i := range t.rows {
		for j := range t.vecs {
			zero(t.sum(i, j))
		}
	}
	const unroll = 4
	ahead := reg.R12
	row, next, left := reg.RAX, reg.R9, reg.R13 // of C: row to prefetch, distance to the next, and remaining rows
	step := func(u int) {
		for j := range t.vecs {
			VMOVUPS(Mem{Base: reg.RDX, Disp: (u*t.vecs + j) * t.bytes()}, t.r[j])
		}
		for i := range t.rows {
			x := t.r[t.vecs+i%min(t.free(), 4)]
			VBROADCASTSS(Mem{Base: reg.RSI, Disp: 4 * (u*t.rows + i)}, x)
			for j := range t.vecs {
				if t.pairs {
					dotPairs(x, t.r[j], t.sum(i, j))
				} else {
					VFMADD231PS(x, t.r[j], t.sum(i, j))
				}
			}
		}
	}
	advance := func(u int) {
		ADDQ(I32(int32(u*t.vecs*t.bytes())), reg.RDX)
		ADDQ(I32(int32(u*t.rows*4)), reg.RSI)
	}
	steps := func(between func(u int)) {
		for u := range unroll {
			if at := u * t.rows * 4; at%64 < t.rows*4 { // a cache line starts
				PREFETCHT1(Mem{Base: reg.RSI, Index: ahead, Scale: 1, Disp: at})
			}
			between(u)
			step(u)
		}
		advance(unroll)
		DECQ(reg.RBX)
	}
	fetchRow := func(u int) {
		if u%2 > 0 {
			return
		}
		for j := 0; j < t.vecs*t.bytes(); j += 64 {
			PREFETCHT0(Mem{Base: row, Disp: j})
		}
		if t.rows > 1 {
			ADDQ(next, row)
			DECQ(left)
			CMOVQEQ(left, next) // stay at the last
		}
	}

	param("ahead", ahead)
	MOVQ(reg.RDI, row)
	MOVQ(reg.R8, next)
	MOVQ(U32(uint32(t.rows-1)), left)
	MOVQ(reg.RCX, reg.RBX)
	SHRQ(U8(2), reg.RBX)
	SUBQ(I32(int32(t.late())), reg.RBX)
	JLE(LabelRef("fetch"))
	align()
	Label("loop")
	steps(func(int) {})
	JNZ(LabelRef("loop"))
	Label("fetch")
	ADDQ(I32(int32(t.late())), reg.RBX)
	JZ(LabelRef("tail"))
	align()
	Label("late")
	steps(fetchRow)
	JNZ(LabelRef("late"))
	Label("tail")
	ANDQ(I32(unroll-1), reg.RCX)
	JZ(LabelRef("done"))
	Label("last")
	step(0)
	advance(1)
	DECQ(reg.RCX)
	JNZ(LabelRef("last"))
	Label("done")
}

// late returns how many iterations before the end of the loop the lines of C are prefetched: enough to load the last of
// them from memory.
func (t *tileState) late() int {
	const cycles = 1536
	return cycles / (4 * t.rows * t.vecs)
}

// each calls do for each register of C, whose rows start at c, with the register's index in the row and its sum. It
// leaves c at the last row.
func (t *tileState) each(c reg.GPPhysical, do func(m Mem, j int, z reg.VecPhysical)) {
	for i := range t.rows {
		for j := range t.vecs {
			do(Mem{Base: c, Disp: j * t.bytes()}, j, t.sum(i, j))
		}
		if i < t.rows-1 {
			ADDQ(reg.R8, c)
		}
	}
}

// store adds C and bias to the sums and writes them.
func (t *tileState) store(suffix string, add, load, write func(m Mem, j int, z reg.VecPhysical)) {
	TESTB(U8(1), reg.AL)
	JZ(LabelRef("bias" + suffix))
	MOVQ(reg.RDI, reg.RSI)
	t.each(reg.RSI, add)
	Label("bias" + suffix)
	TESTQ(reg.R11, reg.R11)
	JZ(LabelRef("store" + suffix))
	for j := range t.vecs {
		tmp := t.r[t.vecs]
		load(Mem{Base: reg.R11, Disp: j * t.bytes()}, j, tmp)
		for i := range t.rows {
			VADDPS(tmp, t.sum(i, j), t.sum(i, j))
		}
	}
	Label("store" + suffix)
	t.each(reg.RDI, write)
	VZEROUPPER()
	RET()
}

// storeEdge emits store for fewer columns than the tile has.
func (t *tileState) storeEdge() {
	if t.vector == avx512 {
		masks := []reg.OpmaskPhysical{reg.K1, reg.K2, reg.K3, reg.K4}[:t.vecs]
		mask512(reg.R10, reg.RBX, masks...)
		t.store("Edge",
			func(m Mem, j int, z reg.VecPhysical) { VADDPS(m, z, masks[j], z) },
			func(m Mem, j int, z reg.VecPhysical) { VMOVUPS_Z(m, masks[j], z) },
			func(m Mem, j int, z reg.VecPhysical) { VMOVUPS(z, masks[j], m) })
		return
	}
	masks, tmp := t.r[:t.vecs], t.r[t.vecs+1] // store uses t.r[vecs]
	t.mask256(reg.R10, tmp, masks...)
	t.store("Edge",
		func(m Mem, j int, z reg.VecPhysical) { VMASKMOVPS(m, masks[j], tmp); VADDPS(tmp, z, z) },
		func(m Mem, j int, z reg.VecPhysical) { VMASKMOVPS(m, masks[j], z) },
		func(m Mem, j int, z reg.VecPhysical) { VMASKMOVPS(z, masks[j], m) })
}
