package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// copyAcross emits the packing of whole rows into panels across k. Column i of panel p, element (p·w+i,t) at src +
// size·(p·w+i) + t·step, goes to dst + p·panel + 4·(t·w+i), for a tile of width w.
//
// It reads each row across all panels before the next row, which suits the memory system: panel by panel, it would read
// only a line or two of each page. It also prefetches the same columns of later rows.
func copyAcross(v *vector, e elem) {
	text(sprintf("across%s%s", v.name, e.name),
		"func(dst *float32, panel int, src *byte, step, panels, k int)",
		sprintf("dst[p·panel+4·(t·%d+i)] = src[%d·(p·%d+i)+t·step], panel and step in bytes, i < %d, p < panels, t < k.", v.width(), e.size, v.width(), v.width()))
	w := acrossRows(1)
	w.panels(e, func() {
		for j := range v.tileVecs {
			e.load(Mem{Base: w.src, Disp: j * v.lanes * e.size}, v.r[j])
		}
		for j := range v.tileVecs {
			VMOVUPS(v.r[j], Mem{Base: w.dst, Disp: j * v.bytes()})
		}
	}, v, nil)
}

// copyAcrossPairs emits the packing into panels of pairs, k even: two rows become one. See copyAcross.
func copyAcrossPairs(e elem) {
	v := avx512
	text(sprintf("across512Pairs%s", e.name),
		"func(dst *float32, panel int, src *byte, step, panels, k int)",
		sprintf("dst[p·panel+4·(t·%d+i)] = the pair src[%d·(p·%d+i)+2t·step], src[%d·(p·%d+i)+(2t+1)·step], panel and step in bytes, i < %d, p < panels, 2t < k.",
			v.width(), e.size, v.width(), e.size, v.width(), v.width()))
	w := acrossRows(2)
	order, upper := reg.Z30, reg.Z29
	VMOVDQU64(v.zip, order)
	if e == bf16 { // bfloat16 is copied unchanged
		VMOVDQU64(v.zip.Offset(64), order)
		VMOVDQU64(v.zip.Offset(128), upper)
	}
	w.panels(e, func() {
		odd := Mem{Base: w.src, Index: w.step, Scale: 1}
		if e == bf16 {
			VMOVDQU64(Mem{Base: w.src}, reg.Z0)
			VMOVDQU64(odd, reg.Z1)
			VMOVDQA64(reg.Z0, reg.Z2)
			VPERMT2W(reg.Z1, order, reg.Z0)
			VPERMT2W(reg.Z1, upper, reg.Z2)
			VMOVUPS(reg.Z0, Mem{Base: w.dst})
			VMOVUPS(reg.Z2, Mem{Base: w.dst, Disp: v.bytes()})
			return
		}
		for j := range v.tileVecs {
			low, high := v.r[2*j], v.r[2*j+1]
			e.load(Mem{Base: w.src, Disp: j * v.lanes * e.size}, low)
			e.load(odd.Offset(j*v.lanes*e.size), high)
			narrowPairs(low, high, low)
			VPERMW(low, order, low)
			VMOVUPS(low, Mem{Base: w.dst, Disp: j * v.bytes()})
		}
	}, v, nil)
}

// acrossLoop emits the loops of copyAcross.
type acrossLoop struct {
	rows     int // rows of src that are packed together: 1 or 2
	src, dst reg.GPPhysical
	step     reg.GPPhysical
	afar     reg.GPPhysical // distance to the second of the rows prefetched
}

// acrossRows returns a loop with the parameters loaded.
func acrossRows(rows int) *acrossLoop {
	w := &acrossLoop{rows: rows, src: reg.RAX, dst: reg.R11, step: reg.R9, afar: reg.R13}
	param("dst", reg.RDI)
	param("panel", reg.R8)
	param("src", reg.RSI)
	param("step", w.step)
	param("panels", reg.R10)
	param("k", reg.RCX)
	return w
}

// panels emits the loops around body, which packs rows at w.src to w.dst, and then done, if not nil.
func (w *acrossLoop) panels(e elem, body func(), v *vector, done func()) {
	if w.rows == 2 {
		LEAQ(Mem{Base: w.step, Index: w.step, Scale: rowsAhead}, w.afar)
	}
	SUBQ(I32(int32(w.rows)), reg.RCX)
	JLT(LabelRef("done"))
	Label("rows")
	MOVQ(reg.RSI, w.src)
	MOVQ(reg.RDI, w.dst)
	MOVQ(reg.R10, reg.RBX)
	align()
	Label("panels")
	for i := 0; i < v.width()*e.size; i += 64 {
		PREFETCHT1(Mem{Base: w.src, Index: w.step, Scale: rowsAhead, Disp: i})
		if w.rows == 2 {
			PREFETCHT1(Mem{Base: w.src, Index: w.afar, Scale: 1, Disp: i})
		}
	}
	body()
	ADDQ(I32(int32(v.width()*e.size)), w.src)
	ADDQ(reg.R8, w.dst)
	DECQ(reg.RBX)
	JNZ(LabelRef("panels"))
	LEAQ(Mem{Base: reg.RSI, Index: w.step, Scale: uint8(w.rows)}, reg.RSI)
	ADDQ(I32(int32(4*v.width())), reg.RDI)
	SUBQ(I32(int32(w.rows)), reg.RCX)
	JGE(LabelRef("rows"))
	Label("done")
	if done != nil {
		done()
	}
	VZEROUPPER()
	RET()
}
