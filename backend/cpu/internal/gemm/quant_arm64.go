//go:build arm64 && !purego

package gemm

import "unsafe"

// The signatures of the generated kernels for quantised weights.
type (
	dots8Asm = func(k int, x *float32, ldx int, w *byte, ldw, n int, out *float32, ldo int)
	dots4Asm = func(k int, x *float32, ldx int, w *byte, ldw, n int, out *float32, ldo int, code *float32)
)

var (
	neonDots8 = [...]dots8Asm{nil, neonDotsQ8x1, neonDotsQ8x2, neonDotsQ8x3}
	neonDots4 = [...]dots4Asm{nil, neonDotsQ4x1, neonDotsQ4x2, neonDotsQ4x3}
)

func neonUnblock(dst, src unsafe.Pointer, elem Elem, blocks int) {
	if elem == Q8 {
		neonUnblockQ8((*float32)(dst), (*byte)(src), blocks)
		return
	}
	neonUnblockQ4((*float32)(dst), (*byte)(src), blocks, &elem.code()[0])
}

func neonDotBlocks(rows, k int, x unsafe.Pointer, ldx int, w unsafe.Pointer, elem Elem, ldw, n int, out unsafe.Pointer, ldo int) {
	if elem == Q8 {
		neonDots8[rows](k, (*float32)(x), 4*ldx, (*byte)(w), ldw, n, (*float32)(out), 4*ldo)
		return
	}
	neonDots4[rows](k, (*float32)(x), 4*ldx, (*byte)(w), ldw, n, (*float32)(out), 4*ldo, &elem.code()[0])
}
