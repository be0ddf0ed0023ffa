package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// tile emits C[rows, cols] = (C if add) + bias + a·b for packed panels a
// [k][rows] and b [k][vecs·lanes], all sums in registers.
//
// For every k it loads one row of b and broadcasts each element of a: rows +
// vecs loads for rows·vecs multiply-adds, so that the multipliers and not the
// load ports set the pace.
//
// With pairs the words of the panels are pairs of bfloat16.
func tile(v *vector, rows, vecs int, pairs bool) {
	name, of := "tile"+v.name, ""
	if pairs {
		name, of = "tilePairs"+v.name, " of pairs"
	}
	text(sprintf("%sx%d", name, rows),
		"func(k int, a, b, c *float32, ldc, cols int, add bool, bias *float32)",
		sprintf("C[%d,cols] = (C if add) + bias + a·b%s; ldc in bytes, cols ≤ %d.", rows, of, vecs*v.lanes))
	t := &tileState{vector: v, rows: rows, vecs: vecs, pairs: pairs}
	param("k", reg.RCX)
	param("a", reg.RSI)
	param("b", reg.RDX)
	param("c", reg.RDI)
	param("ldc", reg.R8)
	for i := range rows {
		for j := range vecs {
			zero(t.sum(i, j))
		}
	}
	t.prefetch()
	t.loop()

	Load(Param("add"), reg.RAX)
	param("bias", reg.R11)
	param("cols", reg.R10)
	CMPQ(reg.R10, I32(int32(vecs*v.lanes)))
	JNE(LabelRef("edge"))
	t.store("", func(m Mem, _ int, z reg.VecPhysical) { VADDPS(m, z, z) },
		func(m Mem, _ int, z reg.VecPhysical) { VMOVUPS(m, z) },
		func(z reg.VecPhysical, m Mem, _ int) { VMOVUPS(z, m) })
	Label("edge")
	t.storeEdge()
}

// tileState names the registers of a tile.
type tileState struct {
	*vector
	rows, vecs int
	pairs      bool
}

// sum is the accumulator of row i, vector j.
func (t *tileState) sum(i, j int) reg.VecPhysical {
	return t.r[len(t.r)-t.rows*t.vecs+i*t.vecs+j]
}

// free is the number of registers that hold neither sums nor b.
func (t *tileState) free() int { return len(t.r) - (t.rows+1)*t.vecs }

// prefetch brings the lines of C near: they are needed when the loop ends.
func (t *tileState) prefetch() {
	MOVQ(reg.RDI, reg.RAX)
	for i := range t.rows {
		for j := 0; j < t.vecs*t.bytes(); j += 64 {
			PREFETCHT0(Mem{Base: reg.RAX, Disp: j})
		}
		if i < t.rows-1 {
			ADDQ(reg.R8, reg.RAX)
		}
	}
}

// loop goes over k.
func (t *tileState) loop() {
	const unroll = 4
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
	MOVQ(reg.RCX, reg.RBX)
	SHRQ(U8(2), reg.RBX)
	JZ(LabelRef("tail"))
	align()
	Label("loop")
	for u := range unroll {
		step(u)
	}
	advance(unroll)
	DECQ(reg.RBX)
	JNZ(LabelRef("loop"))
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

// store adds C and bias to the sums and writes them.
func (t *tileState) store(suffix string, add, load func(m Mem, j int, z reg.VecPhysical), write func(z reg.VecPhysical, m Mem, j int)) {
	TESTB(U8(1), reg.AL)
	JZ(LabelRef("bias" + suffix))
	MOVQ(reg.RDI, reg.RSI)
	for i := range t.rows {
		for j := range t.vecs {
			add(Mem{Base: reg.RSI, Disp: j * t.bytes()}, j, t.sum(i, j))
		}
		if i < t.rows-1 {
			ADDQ(reg.R8, reg.RSI)
		}
	}
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
	for i := range t.rows {
		for j := range t.vecs {
			write(t.sum(i, j), Mem{Base: reg.RDI, Disp: j * t.bytes()}, j)
		}
		if i < t.rows-1 {
			ADDQ(reg.R8, reg.RDI)
		}
	}
	VZEROUPPER()
	RET()
}

// storeEdge is store for fewer columns than the tile has.
func (t *tileState) storeEdge() {
	if t.vector == avx512 {
		masks := []reg.OpmaskPhysical{reg.K1, reg.K2, reg.K3, reg.K4}[:t.vecs]
		mask512(reg.R10, reg.RBX, masks...)
		t.store("Edge",
			func(m Mem, j int, z reg.VecPhysical) { VADDPS(m, z, masks[j], z) },
			func(m Mem, j int, z reg.VecPhysical) { VMOVUPS_Z(m, masks[j], z) },
			func(z reg.VecPhysical, m Mem, j int) { VMOVUPS(z, masks[j], m) })
		return
	}
	masks, tmp := t.r[:t.vecs], t.r[t.vecs+1] // store takes t.r[vecs]
	t.mask256(reg.R10, tmp, masks...)
	t.store("Edge",
		func(m Mem, j int, z reg.VecPhysical) { VMASKMOVPS(m, masks[j], tmp); VADDPS(tmp, z, z) },
		func(m Mem, j int, z reg.VecPhysical) { VMASKMOVPS(m, masks[j], z) },
		func(z reg.VecPhysical, m Mem, j int) { VMASKMOVPS(z, masks[j], m) })
}
