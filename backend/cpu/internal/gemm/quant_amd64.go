//go:build amd64 && !purego

package gemm

import (
	"math"
	"unsafe"
)

// The signatures of the generated kernels for quantised weights.
type (
	dots8Asm = func(k int, x *float32, ldx int, w *byte, ldw, n int, out *float32, ldo int)
	dots4Asm = func(k int, x *float32, ldx int, w *byte, ldw, n int, out *float32, ldo int, code *float32)
)

var (
	avx2Dots8   = [...]dots8Asm{nil, dot256Q8x1, dot256Q8x2, dot256Q8x3}
	avx2Dots4   = [...]dots4Asm{nil, dot256Q4x1, dot256Q4x2, dot256Q4x3}
	avx512Dots8 = [...]dots8Asm{nil, dot512Q8x1, dot512Q8x2, dot512Q8x3, dot512Q8x4}
	avx512Dots4 = [...]dots4Asm{nil, dot512Q4x1, dot512Q4x2, dot512Q4x3, dot512Q4x4}
)

// planes is a table of 4-bit codes for AVX2: the lowest bytes of its numbers, then the next
// ones, and so on.
type planes [4][16]byte

var nf4Planes, fp4Planes = planesOf(&nf4Code), planesOf(&fp4Code)

func planesOf(code *[16]float32) (p planes) {
	for i, x := range code {
		for j := range p {
			p[j][i] = byte(math.Float32bits(x) >> (8 * j))
		}
	}
	return p
}

// planes returns the table of a 4-bit type.
func (e Elem) planes() *float32 {
	if e == FP4 {
		return (*float32)(unsafe.Pointer(&fp4Planes))
	}
	return (*float32)(unsafe.Pointer(&nf4Planes))
}

func avx2Unblock(dst, src unsafe.Pointer, elem Elem, blocks int) {
	if elem == Q8 {
		unblock256Q8((*float32)(dst), (*byte)(src), blocks)
		return
	}
	unblock256Q4((*float32)(dst), (*byte)(src), blocks, elem.planes())
}

func avx512Unblock(dst, src unsafe.Pointer, elem Elem, blocks int) {
	if elem == Q8 {
		unblock512Q8((*float32)(dst), (*byte)(src), blocks)
		return
	}
	unblock512Q4((*float32)(dst), (*byte)(src), blocks, &elem.code()[0])
}

func avx2DotBlocks(rows, k int, x unsafe.Pointer, ldx int, w unsafe.Pointer, elem Elem, ldw, n int, out unsafe.Pointer, ldo int) {
	if elem == Q8 {
		avx2Dots8[rows](k, (*float32)(x), 4*ldx, (*byte)(w), ldw, n, (*float32)(out), 4*ldo)
		return
	}
	avx2Dots4[rows](k, (*float32)(x), 4*ldx, (*byte)(w), ldw, n, (*float32)(out), 4*ldo, elem.planes())
}

func avx512DotBlocks(rows, k int, x unsafe.Pointer, ldx int, w unsafe.Pointer, elem Elem, ldw, n int, out unsafe.Pointer, ldo int) {
	if elem == Q8 {
		avx512Dots8[rows](k, (*float32)(x), 4*ldx, (*byte)(w), ldw, n, (*float32)(out), 4*ldo)
		return
	}
	avx512Dots4[rows](k, (*float32)(x), 4*ldx, (*byte)(w), ldw, n, (*float32)(out), 4*ldo, &elem.code()[0])
}

func avx2DotBlocksLong(k int, x, w unsafe.Pointer, elem Elem, ldw, n int, out unsafe.Pointer) {
	if elem == Q8 {
		deep256Q8(k, (*float32)(x), (*byte)(w), ldw, n, (*float32)(out))
		return
	}
	deep256Q4(k, (*float32)(x), (*byte)(w), ldw, n, (*float32)(out), elem.planes())
}

func avx512DotBlocksLong(k int, x, w unsafe.Pointer, elem Elem, ldw, n int, out unsafe.Pointer) {
	if elem == Q8 {
		deep512Q8(k, (*float32)(x), (*byte)(w), ldw, n, (*float32)(out))
		return
	}
	deep512Q4(k, (*float32)(x), (*byte)(w), ldw, n, (*float32)(out), &elem.code()[0])
}
