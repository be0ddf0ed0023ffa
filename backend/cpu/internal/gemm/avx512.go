//go:build amd64 && !purego

package gemm

import "unsafe"

var avx512 = kernels{
	isa: AVX512, limits: limitsHere(AVX512), fetch: fetchAhead,
	panelKernels: &panelKernels{
		mr: 12, nr: 32, grain: 1, kc: 512 + kcRank, smaller: true, pairSize: 1,
		tile: avx512Tile, pack: avx512Pack, across: avx512Across,
	},
	inPlace: &inPlaceKernels{multiply: avx512InPlace, panel: avx512Panel, rows: 8, cols: avx512InPlaceCols, panelRows: 4},
	rows: &rowKernels{
		dots: avx512Dots, dotRows: 4,
		split: avx512Split, dotSplit: avx512DotSplit,
		short:   avx512Short,
		unblock: avx512Unblock, dotBlocks: avx512DotBlocks, dotBlocksLong: avx512DotBlocksLong,
		direct: avx512Direct, directRows: 8,
	},
	strips: &stripKernels{multiply: avx512Strip, rows: stripRows512, lanes: 16, panel: avx512Panel},
	outer:  &outerKernels{multiply: avx512Outer, cols: outerCols512},
}

var (
	avx512Tiles = [...]tileAsm{nil, tile512x1, tile512x2, tile512x3, tile512x4, tile512x5, tile512x6, tile512x7,
		tile512x8, tile512x9, tile512x10, tile512x11, tile512x12}
	avx512Transposes = [...]transposeAsm{F32: transpose512F32, F16: transpose512F16, BF16: transpose512BF16}
	avx512Copies     = [...][2]copyAsm{
		F32:  {copy512F32x1, copy512F32x2},
		F16:  {copy512F16x1, copy512F16x2},
		BF16: {copy512BF16x1, copy512BF16x2},
	}
	avx512Acrosses = [...]acrossAsm{F32: across512F32, F16: across512F16, BF16: across512BF16}
	avx512DotRows  = [...][5]dotsAsm{
		F32:  {nil, dot512F32x1, dot512F32x2, dot512F32x3, dot512F32x4},
		F16:  {nil, dot512F16x1, dot512F16x2, dot512F16x3, dot512F16x4},
		BF16: {nil, dot512BF16x1, dot512BF16x2, dot512BF16x3, dot512BF16x4},
	}
	avx512Directs = [...][9]directAsm{
		F32: {nil, direct512F32x1, direct512F32x2, direct512F32x3, direct512F32x4,
			direct512F32x5, direct512F32x6, direct512F32x7, direct512F32x8},
		F16: {nil, direct512F16x1, direct512F16x2, direct512F16x3, direct512F16x4,
			direct512F16x5, direct512F16x6, direct512F16x7, direct512F16x8},
		BF16: {nil, direct512BF16x1, direct512BF16x2, direct512BF16x3, direct512BF16x4,
			direct512BF16x5, direct512BF16x6, direct512BF16x7, direct512BF16x8},
	}
	avx512Outers = [...]outerAsm{nil, outer512x1, outer512x2, outer512x3, outer512x4, outer512x5, outer512x6, outer512x7, outer512x8,
		outer512x9, outer512x10, outer512x11, outer512x12, outer512x13, outer512x14, outer512x15, outer512x16}
	outerCols512  = []int{0, 32, 32, 32, 32, 32, 32, 32, 32, 16, 16, 16, 16, 16, 16, 16, 16}
	avx512Strips  = [...]blockAsm{nil, block512x1, block512x2, block512x3, block512x4, block512x5, block512x6, 8: block512x8}
	stripRows512  = []int{0, 4, 4, 4, 4, 4, 4, 0, 3}
	avx512Spreads = [...]fanAsm{1: fan512x8, 2: fan512x16, 3: fan512x32, 4: fan512x32, 5: fan512x48, 6: fan512x48}
)

func avx512Tile(rows, k int, a, b, c unsafe.Pointer, ldc, cols int, add bool, bias unsafe.Pointer, ahead int) {
	avx512Tiles[rows](k, (*float32)(a), (*float32)(b), (*float32)(c), 4*ldc, cols, add, (*float32)(bias), ahead)
}

func avx512Pack(dst unsafe.Pointer, width int, src unsafe.Pointer, elem Elem, lane, step, lanes, k int, alpha float32) {
	const vec = 16
	if lane == elem.Size() {
		for i := 0; i < width; i += 2 * vec {
			n := max(0, min(2*vec, lanes-i))
			copies := avx512Copies[elem][min(1, (width-i-1)/vec)]
			copies((*float32)(at(dst, 4*i)), 4*width, (*byte)(at(src, min(i, lanes-1)*lane)), step, n, k, alpha)
		}
		return
	}
	for i := 0; i < width; i += vec {
		rows := max(0, min(vec, lanes-i))
		avx512Transposes[elem]((*float32)(at(dst, 4*i)), 4*width, (*byte)(at(src, min(i, lanes-1)*lane)), lane, rows, k, alpha)
	}
}

func avx512Across(dst unsafe.Pointer, panel int, src unsafe.Pointer, elem Elem, step, panels, k int) {
	avx512Acrosses[elem]((*float32)(dst), 4*panel, (*byte)(src), step, panels, k)
}

func avx512Dots(rows, k int, x unsafe.Pointer, ldx int, w unsafe.Pointer, elem Elem, ldw, n int, out unsafe.Pointer, ldo int) {
	avx512DotRows[elem][rows](k, (*float32)(x), 4*ldx, (*byte)(w), ldw, n, (*float32)(out), 4*ldo)
}

func avx512Split(dst, x unsafe.Pointer, k int) { split512((*float32)(dst), (*float32)(x), k) }

func avx512Short(k int, x, w unsafe.Pointer, ldw, n int, c unsafe.Pointer, alpha float32) {
	short512(k, (*float32)(x), (*byte)(w), ldw, n, (*float32)(c), alpha)
}

func avx512DotSplit(k int, x, w unsafe.Pointer, ldw, n int, out unsafe.Pointer) {
	dotSplit512(k, (*float32)(x), (*byte)(w), ldw, n, (*float32)(out))
}

func avx512Direct(rows, k int, a unsafe.Pointer, arow, acol int, b unsafe.Pointer, elem Elem, ldb int, c unsafe.Pointer, ldc, cols int, alpha float32) {
	width := 64
	if rows > 4 {
		width = 32
	}
	for j := 0; j < cols; j += width {
		avx512Directs[elem][rows](k, (*float32)(a), arow, acol, (*byte)(at(b, j*elem.Size())), ldb,
			(*float32)(at(c, 4*j)), 4*ldc, min(width, cols-j), alpha)
	}
}

func avx512Outer(rows, k int, a unsafe.Pointer, step int, b unsafe.Pointer, ldb, ahead, apart int, c unsafe.Pointer, ldc, cols int, alpha float32) {
	avx512Outers[rows](k, (*float32)(a), step, (*float32)(b), ldb, ahead, apart, (*float32)(c), 4*ldc, cols, alpha)
}

func avx512Strip(cols, k int, x unsafe.Pointer, ldx int, w, c unsafe.Pointer, ldc, ahead int, alpha float32) {
	avx512Strips[cols](k, (*float32)(x), 4*ldx, (*float32)(w), (*float32)(c), 4*ldc, ahead, alpha)
}

func avx512Spread(cols, k int, x unsafe.Pointer, ldx int, w, c unsafe.Pointer, ldc, ahead int, alpha float32) {
	avx512Spreads[ceil(cols, 8)](k, (*float32)(x), 4*ldx, (*float32)(w), (*float32)(c), 4*ldc, cols, ahead, alpha)
}

// spreadZips holds the element order of two registers of columns: two elements along k of each of 16 columns, ordered
// so that columns that spread adds up to neighbours come first, or four of 8, every other column.
var spreadZips = [...][2][16]int32{
	1: {
		{0, 8, 16, 24, 2, 10, 18, 26, 4, 12, 20, 28, 6, 14, 22, 30},
		{1, 9, 17, 25, 3, 11, 19, 27, 5, 13, 21, 29, 7, 15, 23, 31},
	},
	2: {
		{0, 16, 1, 17, 4, 20, 5, 21, 8, 24, 9, 25, 12, 28, 13, 29},
		{2, 18, 3, 19, 6, 22, 7, 23, 10, 26, 11, 27, 14, 30, 15, 31},
	},
}

func avx512SpreadZip(w unsafe.Pointer, cols, k int) {
	if eights := ceil(cols, 8); eights < len(spreadZips) {
		z := &spreadZips[eights]
		fanZip512((*float32)(w), ceil(k*8*eights, 32), &z[0][0], &z[1][0])
	}
}
