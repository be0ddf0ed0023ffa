//go:build arm64 && !purego

package gemm

import (
	"unsafe"

	"github.com/lorafuse/lorafuse/tensor"
)

// neonBF16 is neon with products of bfloat16 where a call allows them.
var neonBF16 = func() kernels {
	k := neon
	k.isa, k.limits = NEONBF16, limitsOf[NEONBF16]
	k.pairs = &kernels{
		isa: NEONBF16,
		panelKernels: &panelKernels{
			mr: 8, nr: 12, grain: 2, kc: 512 + kcRank, pairSize: 2, run: 2,
			tile: neonQuadTile, pack: neonQuadPack,
		},
	}
	return k
}()

var (
	neonQuadTiles = [...]tileAsm{nil, neonQuadsx1, neonQuadsx2, neonQuadsx3, neonQuadsx4, neonQuadsx5, neonQuadsx6, neonQuadsx7, neonQuadsx8}
	neonQuadRows  = [...][2]quadRowsAsm{
		F32:  {neonQuadRowsF32x1, neonQuadRowsF32x4},
		F16:  {neonQuadRowsF16x1, neonQuadRowsF16x4},
		BF16: {neonQuadRowsBF16x1, neonQuadRowsBF16x4},
	}
	neonQuadRowsRaw = [2]quadRowsAsm{neonQuadRowsRawx1, neonQuadRowsRawx4}
	neonQuadLanes   = [...]copyAsm{F32: neonQuadLanesF32, F16: neonQuadLanesF16, BF16: neonQuadLanesBF16}
)

func neonQuadTile(rows, k int, a, b, c unsafe.Pointer, ldc, cols int, add bool, bias unsafe.Pointer, ahead int) {
	neonQuadTiles[rows](k, (*float32)(a), (*float32)(b), (*float32)(c), 4*ldc, cols, add, (*float32)(bias))
}

// neonQuadPack packs two words of each lane side by side: the four elements
// that one instruction multiplies.
func neonQuadPack(dst unsafe.Pointer, width int, src unsafe.Pointer, elem Elem, lane, step, lanes, k int, alpha float32) {
	const vec, quad = 4, 8 // lanes at a time, bytes of a lane
	rows := neonQuadRows[elem]
	if elem == BF16 && alpha == 1 {
		rows = neonQuadRowsRaw
	}
	across := lane == elem.Size()
	i := 0
	for ; i+vec <= lanes; i += vec {
		to, from := (*float32)(at(dst, quad*i)), (*byte)(at(src, i*lane))
		if across {
			neonQuadLanes[elem](to, quad*width, from, step, k, alpha)
		} else {
			rows[1](to, quad*width, from, lane, k, alpha)
		}
	}
	for ; i < width; i++ {
		switch to, from := at(dst, quad*i), at(src, min(i, lanes-1)*lane); {
		case i >= lanes:
			for t := range ceil(k, 4) {
				*(*uint64)(at(to, t*quad*width)) = 0
			}
		case across:
			quadLane(to, width, from, elem, step, k, alpha)
		default:
			rows[0]((*float32)(to), quad*width, (*byte)(from), lane, k, alpha)
		}
	}
}

// quadLane packs one lane whose elements are not contiguous along k.
func quadLane(dst unsafe.Pointer, width int, src unsafe.Pointer, elem Elem, step, k int, alpha float32) {
	for t := 0; t < k; t += 4 {
		var quad uint64
		for i := range min(4, k-t) {
			quad |= uint64(tensor.Float32ToBF16(alpha*load(at(src, (t+i)*step), elem))) << (16 * i)
		}
		*(*uint64)(at(dst, 2*t*width)) = quad
	}
}

// load returns the element of the given type at p.
func load(p unsafe.Pointer, elem Elem) float32 {
	switch elem {
	case BF16:
		return tensor.BF16ToFloat32(*(*uint16)(p))
	case F16:
		return tensor.F16ToFloat32(*(*uint16)(p))
	}
	return *(*float32)(p)
}
