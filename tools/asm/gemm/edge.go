package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// edge reads at most n elements of one or two registers with AVX2, which lacks masked loads of 16-bit elements. It
// loads pairs of them under a mask, and the last one separately, since their number may be odd. The masks are windows
// into constants.
type edge struct {
	*vector
	elem
	n           reg.GPPhysical // > 0
	lanes, last reg.GPPhysical // windows; float32 uses only the first
}

// edgeMasks emits the constants of edges: set bits followed by clear bits, and one set word among clear bits.
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

// begin emits the selection of the windows.
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

// load emits the load of elements at src, which has no index, widened to one or two registers; elements past the end
// are zero. It uses tmp.
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

// words emits the load of 16-bit elements without widening.
func (x *edge) words(src Mem, tmp, dst reg.Register) {
	last := src.Offset(-x.size)
	last.Index, last.Scale = x.n, uint8(x.size)
	VMOVDQU(Mem{Base: x.lanes}, tmp)
	VPMASKMOVD(src, tmp, dst)
	VPBROADCASTW(last, tmp)
	VPAND(Mem{Base: x.last}, tmp, tmp)
	VPOR(tmp, dst, dst)
}
