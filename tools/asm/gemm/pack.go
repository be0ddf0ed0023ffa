package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// transpose emits the packing of rows along k into panels across k: element (i,t) at src + i·lane + t·size goes to dst
// + t·width + 4i, times alpha. Lanes from rows up to the end of the register are zero. It transposes squares of lanes ×
// lanes elements in registers. With AVX2 the elements are pairs of bfloat16, which a shift or a mask converts to floats
// after the shuffles; that halves the number of shuffles.
func transpose(v *vector, e elem) {
	text(sprintf("transpose%s%s", v.name, e.name),
		"func(dst *float32, width int, src *byte, lane, rows, k int, alpha float32)",
		sprintf("dst[t·width+4i] = alpha·src[i·lane+t·%d], strides in bytes, i < %d with zeroes from rows on, t < k.", e.size, v.lanes))
	last := edge{vector: v, elem: e, n: reg.RCX, lanes: reg.R11, last: reg.R12}
	param("dst", reg.RDI)
	param("width", reg.R8)
	param("src", reg.RSI)
	param("lane", reg.R9)
	param("rows", reg.R10)
	param("k", reg.RCX)
	square, alpha := transpose16, reg.VecPhysical(reg.Z31)
	if v == avx2 {
		square, alpha = transpose8, reg.Y15
	}
	pairs := v == avx2 && e == bf16
	turn := v.lanes // elements of a square along k
	load := func(src Mem, dst reg.VecPhysical) { e.load(src, dst) }
	loadTail := func(src Mem, dst reg.VecPhysical) { last.load(src, v.r[v.lanes], dst) }
	switch {
	case v == avx512:
		loadTail = func(src Mem, dst reg.VecPhysical) { e.load(src, dst, reg.K1) }
	case pairs:
		turn *= 2
		load = func(src Mem, dst reg.VecPhysical) { VMOVUPS(src, dst) }
		loadTail = func(src Mem, dst reg.VecPhysical) { last.words(src, v.r[v.lanes], dst) }
	}
	read := func(suffix string, load func(src Mem, dst reg.VecPhysical)) {
		MOVQ(reg.RSI, reg.RAX)
		MOVQ(reg.R10, reg.RBX)
		for i := range v.lanes {
			zero(v.r[i])
		}
		for i := range v.lanes {
			TESTQ(reg.RBX, reg.RBX)
			JZ(LabelRef("read" + suffix))
			fetchOn(reg.RAX)
			load(Mem{Base: reg.RAX}, v.r[i])
			ADDQ(reg.R9, reg.RAX)
			DECQ(reg.RBX)
		}
		Label("read" + suffix)
	}
	write := func(columns int, between func()) {
		out := square(v.r)
		a, _ := Param("alpha").Resolve()
		VBROADCASTSS(a.Addr, alpha)
		for t := range columns {
			z := out[t/(turn/v.lanes)]
			if pairs {
				z = v.r[len(v.r)-2]
				if t%2 == 0 {
					VPSLLD(U8(16), out[t/2], z)
				} else {
					VPAND(v.upper, out[t/2], z)
				}
			}
			VMULPS(alpha, z, z)
			VMOVUPS(z, Mem{Base: reg.RDI})
			ADDQ(reg.R8, reg.RDI)
			between()
		}
	}

	SUBQ(I32(int32(turn)), reg.RCX)
	JLT(LabelRef("tail"))
	Label("loop")
	read("", load)
	write(turn, func() {})
	ADDQ(I32(int32(turn*e.size)), reg.RSI)
	SUBQ(I32(int32(turn)), reg.RCX)
	JGE(LabelRef("loop"))
	Label("tail")
	ADDQ(I32(int32(turn)), reg.RCX)
	JZ(LabelRef("done"))
	if v == avx512 {
		mask512(reg.RCX, reg.RAX, reg.K1)
	} else {
		last.begin()
	}
	read("Tail", loadTail)
	write(turn-1, func() {
		DECQ(reg.RCX)
		JZ(LabelRef("done"))
	})
	Label("done")
	VZEROUPPER()
	RET()
}

// transpose16 transposes the 16x16 floats in registers 0 to 15 and returns the registers of the result. It uses all 32
// registers, and exchanges pairs of rows, then fours, within 128-bit lanes, and then the lanes in two steps.
func transpose16(r []reg.VecPhysical) []reg.VecPhysical {
	for i := 0; i < 16; i += 2 {
		VUNPCKLPS(r[i+1], r[i], r[16+i])
		VUNPCKHPS(r[i+1], r[i], r[17+i])
	}
	for g := 0; g < 16; g += 4 { // then r[g+c], lane l holds rows g…g+3 of column 4l+c
		h := 16 + g
		VUNPCKLPD(r[h+2], r[h], r[g])
		VUNPCKHPD(r[h+2], r[h], r[g+1])
		VUNPCKLPD(r[h+3], r[h+1], r[g+2])
		VUNPCKHPD(r[h+3], r[h+1], r[g+3])
	}
	const even, odd = 0x88, 0xdd // lanes 0 and 2, or 1 and 3, of both
	for c := range 4 {
		h := 16 + 4*c
		VSHUFF32X4(U8(even), r[4+c], r[c], r[h])
		VSHUFF32X4(U8(odd), r[4+c], r[c], r[h+1])
		VSHUFF32X4(U8(even), r[12+c], r[8+c], r[h+2])
		VSHUFF32X4(U8(odd), r[12+c], r[8+c], r[h+3])
	}
	for c := range 4 {
		h := 16 + 4*c
		VSHUFF32X4(U8(even), r[h+2], r[h], r[c])
		VSHUFF32X4(U8(odd), r[h+2], r[h], r[8+c])
		VSHUFF32X4(U8(even), r[h+3], r[h+1], r[4+c])
		VSHUFF32X4(U8(odd), r[h+3], r[h+1], r[12+c])
	}
	return r[:16]
}

// transpose8 transposes the 8x8 floats in registers 0 to 7.
func transpose8(r []reg.VecPhysical) []reg.VecPhysical {
	for i := 0; i < 8; i += 2 {
		VUNPCKLPS(r[i+1], r[i], r[8+i/2])
		VUNPCKHPS(r[i+1], r[i], r[12+i/2])
	}
	for g := range 2 { // then r[4g+c], lane l holds rows 4g…4g+3 of column 4l+c
		lo, hi := 8+2*g, 12+2*g
		VUNPCKLPD(r[lo+1], r[lo], r[4*g])
		VUNPCKHPD(r[lo+1], r[lo], r[4*g+1])
		VUNPCKLPD(r[hi+1], r[hi], r[4*g+2])
		VUNPCKHPD(r[hi+1], r[hi], r[4*g+3])
	}
	for c := range 4 {
		VPERM2F128(U8(0x20), r[4+c], r[c], r[8+c])
		VPERM2F128(U8(0x31), r[4+c], r[c], r[c])
	}
	return append(append([]reg.VecPhysical(nil), r[8:12]...), r[:4]...)
}

// rowsAhead is the prefetch distance, in rows, of kernels that walk down the rows of a matrix. The hardware prefetcher
// does not follow such long strides.
const rowsAhead = 8

// fetchAhead emits the prefetch of memory rowsAhead steps after base, if a cache line starts there.
func fetchAhead(base, step reg.GPPhysical, disp int) {
	if disp%64 == 0 {
		PREFETCHT0(Mem{Base: base, Index: step, Scale: rowsAhead, Disp: disp})
	}
}

// fetchOn emits the prefetch of memory a few lines later in the row at base, into the second-level cache. In the first
// level, rows at a power-of-two distance would evict each other's lines.
func fetchOn(base reg.GPPhysical) {
	const lines = 4
	PREFETCHT1(Mem{Base: base, Disp: 64 * lines})
}

// copyLanes emits the packing of rows across k: element (i,t) at src + size·i + t·step goes to dst + t·width + 4i,
// times alpha, for all t < k. Each row of the panel is written up to the end of the register.
func copyLanes(v *vector, e elem, vecs int, edged bool) {
	name := ""
	if edged {
		name = "Edge"
	}
	text(sprintf("copy%s%s%sx%d", name, v.name, e.name, vecs),
		"func(dst *float32, width int, src *byte, step, lanes, k int, alpha float32)",
		sprintf("dst[t·width+4i] = alpha·src[%d·i+t·step], strides in bytes, i < %d with zeroes from lanes on, t < k.", e.size, vecs*v.lanes))
	param("dst", reg.RDI)
	param("width", reg.R8)
	param("src", reg.RSI)
	param("step", reg.R9)
	param("k", reg.RCX)
	masks := []reg.OpmaskPhysical{reg.K1, reg.K2, reg.K3, reg.K4}[:vecs]
	last := edge{vector: v, elem: e, n: reg.R10, lanes: reg.RAX, last: reg.R11}
	switch {
	case v == avx512:
		param("lanes", reg.R10)
		mask512(reg.R10, reg.RAX, masks...)
	case edged:
		param("lanes", last.n)
		last.begin()
	}
	alpha := v.r[vecs]
	a, _ := Param("alpha").Resolve()
	VBROADCASTSS(a.Addr, alpha)
	TESTQ(reg.RCX, reg.RCX)
	JZ(LabelRef("done"))
	Label("loop")
	if edged {
		last.load(Mem{Base: reg.RSI}, v.r[vecs+1], v.r[:vecs]...)
	}
	for j := range vecs {
		src := Mem{Base: reg.RSI, Disp: j * v.lanes * e.size}
		fetchAhead(reg.RSI, reg.R9, src.Disp)
		switch {
		case v == avx512:
			e.load(src, v.r[j], masks[j])
		case !edged:
			e.load(src, v.r[j])
		}
		VMULPS(alpha, v.r[j], v.r[j])
		VMOVUPS(v.r[j], Mem{Base: reg.RDI, Disp: j * v.bytes()})
	}
	ADDQ(reg.R9, reg.RSI)
	ADDQ(reg.R8, reg.RDI)
	DECQ(reg.RCX)
	JNZ(LabelRef("loop"))
	Label("done")
	VZEROUPPER()
	RET()
}
