package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// edge is how AVX2, which has no masked loads of 16-bit elements, reads no more than n
// elements of one or two registers full: pairs of them under a mask, and the last one by
// itself, for their number may be odd. The masks are windows of constants.
type edge struct {
	*vector
	elem
	n           reg.GPPhysical // > 0
	lanes, last reg.GPPhysical // windows; float32 has but the first
}

// edgeMasks places the constants of edges: all bits before none of them, and one word of
// bits among none.
func (v *vector) edgeMasks() {
	v.below = GLOBL("below"+v.name, 8|16) // RODATA, NOPTR
	for i := range 4 * v.lanes {
		mask := uint32(0)
		if i < 2*v.lanes {
			mask = 0xffffffff
		}
		DATA(4*i, U32(mask))
	}
	v.single = GLOBL("single"+v.name, 8|16)
	for i := range 2 * v.lanes {
		mask := uint32(0)
		if i == v.lanes-1 {
			mask = 0xffff0000
		}
		DATA(4*i, U32(mask))
	}
}

// begin emits the choice of the windows.
func (x *edge) begin() {
	LEAQ(x.below.Offset(8*x.vector.lanes), x.lanes)
	if x.elem == f32 {
		for range 4 {
			SUBQ(x.n, x.lanes)
		}
		return
	}
	MOVQ(x.n, x.last)
	ANDQ(I32(-2), x.last)
	SUBQ(x.last, x.lanes) // two bytes for each element: four for a pair
	SUBQ(x.last, x.lanes)
	LEAQ(x.single.Offset(4*x.vector.lanes), x.last)
	SUBQ(x.n, x.last)
	SUBQ(x.n, x.last)
}

// load emits the reading of elements from src on, which has no index, widened to one or
// two registers; what is behind them is zero. It works in tmp.
func (x *edge) load(src Mem, tmp reg.VecPhysical, dst ...reg.VecPhysical) {
	if x.elem == f32 {
		for j, z := range dst {
			VMOVUPS(Mem{Base: x.lanes, Disp: j * x.bytes()}, tmp)
			VMASKMOVPS(src.Offset(j*x.bytes()), tmp, z)
		}
		return
	}
	if len(dst) == 1 {
		x.words(src, tmp.AsX(), dst[0].AsX())
	} else {
		x.words(src, tmp, dst[0])
		VEXTRACTI128(U8(1), dst[0], dst[1].AsX())
	}
	for _, z := range dst {
		if x.elem == f16 {
			VCVTPH2PS(z.AsX(), z)
			continue
		}
		VPMOVZXWD(z.AsX(), z)
		VPSLLD(U8(16), z, z)
	}
}

// words emits the reading of 16-bit elements as they are.
func (x *edge) words(src Mem, tmp, dst reg.Register) {
	last := src.Offset(-x.size)
	last.Index, last.Scale = x.n, uint8(x.size)
	VMOVDQU(Mem{Base: x.lanes}, tmp)
	VPMASKMOVD(src, tmp, dst)
	VPBROADCASTW(last, tmp)
	VPAND(Mem{Base: x.last}, tmp, tmp)
	VPOR(tmp, dst, dst)
}
