//go:build amd64 && !purego

package gemm

import "unsafe"

var (
	avx512InPlaceCols = []int{0, 6, 6, 6, 6, 4, 4, 3, 3}
	avx512InPlaces    = [...][9]gridAsm{
		F32:  {nil, grid512F32x1, grid512F32x2, grid512F32x3, grid512F32x4, grid512F32x5, grid512F32x6, grid512F32x7, grid512F32x8},
		F16:  {nil, grid512F16x1, grid512F16x2, grid512F16x3, grid512F16x4, grid512F16x5, grid512F16x6, grid512F16x7, grid512F16x8},
		BF16: {nil, grid512BF16x1, grid512BF16x2, grid512BF16x3, grid512BF16x4, grid512BF16x5, grid512BF16x6, grid512BF16x7, grid512BF16x8},
	}
	avx512PairsInPlaces = [...]gridAsm{nil, grid512Pairsx1, grid512Pairsx2, grid512Pairsx3, grid512Pairsx4,
		grid512Pairsx5, grid512Pairsx6, grid512Pairsx7, grid512Pairsx8}
	avx512Panels = [...]panelAsm{F32: panel512Plain, F16: panel512Plain, BF16: panel512Split}

	avx2InPlaceCols = []int{0, 3, 3, 3, 3}
	avx2InPlaces    = [...][5]gridAsm{
		F32:  {nil, grid256F32x1, grid256F32x2, grid256F32x3, grid256F32x4},
		F16:  {nil, grid256F16x1, grid256F16x2, grid256F16x3, grid256F16x4},
		BF16: {nil, grid256BF16x1, grid256BF16x2, grid256BF16x3, grid256BF16x4},
	}
)

func avx512InPlace(rows, k int, x, w unsafe.Pointer, elem Elem, ldw int, c unsafe.Pointer, ldc, skip, ahead int, alpha float32) {
	avx512InPlaces[elem][rows](k, (*float32)(x), (*byte)(w), ldw, (*float32)(c), 4*ldc, skip, ahead, alpha)
}

func avx512PairsInPlace(rows, k int, x, w unsafe.Pointer, _ Elem, ldw int, c unsafe.Pointer, ldc, skip, ahead int, alpha float32) {
	avx512PairsInPlaces[rows](k, (*float32)(x), (*byte)(w), ldw, (*float32)(c), 4*ldc, skip, ahead, alpha)
}

func avx512Panel(dst unsafe.Pointer, row, rows int, x unsafe.Pointer, k int, elem Elem) {
	const vec = 64
	avx512Panels[elem]((*float32)(at(dst, row*vec)), rows*vec, (*float32)(x), k)
}

func avx512PairsPanel(dst unsafe.Pointer, row, rows int, x unsafe.Pointer, k int, _ Elem) {
	const vec = 64
	panel512Pairs((*float32)(at(dst, row*vec)), rows*vec, (*float32)(x), k)
}

func avx2InPlace(rows, k int, x, w unsafe.Pointer, elem Elem, ldw int, c unsafe.Pointer, ldc, skip, ahead int, alpha float32) {
	avx2InPlaces[elem][rows](k, (*float32)(x), (*byte)(w), ldw, (*float32)(c), 4*ldc, skip, ahead, alpha)
}

func avx2Panel(dst unsafe.Pointer, row, rows int, x unsafe.Pointer, k int, elem Elem) {
	const vec = 32
	if elem == BF16 {
		panel256Split((*float32)(at(dst, row*vec)), rows*vec, (*float32)(x), k)
		return
	}
	panel256Plain((*float32)(at(dst, row*vec)), rows*vec, (*float32)(x), k)
}
