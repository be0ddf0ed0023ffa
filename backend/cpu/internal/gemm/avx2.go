//go:build amd64 && !purego

package gemm

import "unsafe"

var avx2 = kernels{
	isa: AVX2, limits: limitsHere(AVX2), fetch: fetchAhead,
	panelKernels: &panelKernels{
		mr: 6, nr: 16, grain: 1, kc: 512 + kcRank, pairSize: 1,
		tile: avx2Tile, tiles: avx2TilesBeside, pack: avx2Pack, across: avx2Across,
	},
	inPlace: &inPlaceKernels{multiply: avx2InPlace, panel: avx2Panel, rows: 4, cols: avx2InPlaceCols, panelRows: 4},
	rows: &rowKernels{
		dots: avx2Dots, dotRows: 3, short: avx2Short,
		unblock: avx2Unblock, dotBlocks: avx2DotBlocks, dotBlocksLong: avx2DotBlocksLong,
		direct: avx2Direct, directRows: 6,
	},
	strips: &stripKernels{multiply: avx2Strip, rows: []int{0, 4, 4}, lanes: 8, panel: avx2Panel},
	spread: &spreadKernels{multiply: avx2Spread, zip: avx2SpreadZip, rows: 6, cols: 16},
	outer:  &outerKernels{multiply: avx2Outer, cols: outerCols256},
}

var (
	avx2Tiles      = [...]tileAsm{nil, tile256x1, tile256x2, tile256x3, tile256x4, tile256x5, tile256x6}
	avx2TileRows   = [...]tilesAsm{nil, tiles256x1, tiles256x2, tiles256x3, tiles256x4, tiles256x5, tiles256x6}
	avx2Transposes = [...]transposeAsm{F32: transpose256F32, F16: transpose256F16, BF16: transpose256BF16}
	avx2Copies     = [...]copyAsm{F32: copy256F32x2, F16: copy256F16x2, BF16: copy256BF16x2}
	avx2CopyEdges  = [...][2]copyAsm{
		F32:  {copyEdge256F32x1, copyEdge256F32x2},
		F16:  {copyEdge256F16x1, copyEdge256F16x2},
		BF16: {copyEdge256BF16x1, copyEdge256BF16x2},
	}
	avx2Acrosses = [...]acrossAsm{F32: across256F32, F16: across256F16, BF16: across256BF16}
	avx2DotRows  = [...][4]dotsAsm{
		F32:  {nil, dot256F32x1, dot256F32x2, dot256F32x3},
		F16:  {nil, dot256F16x1, dot256F16x2, dot256F16x3},
		BF16: {nil, dot256BF16x1, dot256BF16x2, dot256BF16x3},
	}
	avx2Directs = [...][7]directAsm{
		F32:  {nil, direct256F32x1, direct256F32x2, direct256F32x3, direct256F32x4, direct256F32x5, direct256F32x6},
		F16:  {nil, direct256F16x1, direct256F16x2, direct256F16x3, direct256F16x4, direct256F16x5, direct256F16x6},
		BF16: {nil, direct256BF16x1, direct256BF16x2, direct256BF16x3, direct256BF16x4, direct256BF16x5, direct256BF16x6},
	}
	avx2DirectEdges = [...][7]directAsm{
		F32:  {nil, directEdge256F32x1, directEdge256F32x2, directEdge256F32x3, directEdge256F32x4, directEdge256F32x5, directEdge256F32x6},
		F16:  {nil, directEdge256F16x1, directEdge256F16x2, directEdge256F16x3, directEdge256F16x4, directEdge256F16x5, directEdge256F16x6},
		BF16: {nil, directEdge256BF16x1, directEdge256BF16x2, directEdge256BF16x3, directEdge256BF16x4, directEdge256BF16x5, directEdge256BF16x6},
	}
	avx2Outers     = [...]outerAsm{nil, outer256x1, outer256x2, outer256x3, outer256x4, outer256x5, outer256x6}
	avx2OuterEdges = [...]outerAsm{nil, outerEdge256x1, outerEdge256x2, outerEdge256x3, outerEdge256x4, outerEdge256x5, outerEdge256x6}
	outerCols256   = []int{0, 16, 16, 16, 16, 16, 16}
	avx2Spreads    = [...]fanAsm{1: fan256x4, 2: fan256x8, 3: fan256x16, 4: fan256x16}
	avx2Strips     = [...]blockAsm{nil, block256x1, block256x2}
)

func avx2Tile(rows, k int, a, b, c unsafe.Pointer, ldc, cols int, add bool, bias unsafe.Pointer, ahead int) {
	avx2Tiles[rows](k, (*float32)(a), (*float32)(b), (*float32)(c), 4*ldc, cols, add, (*float32)(bias), ahead)
}

func avx2TilesBeside(rows, k int, a, b unsafe.Pointer, panel int, c unsafe.Pointer, ldc, tiles int, add bool, ahead int) {
	avx2TileRows[rows](k, (*float32)(a), (*float32)(b), 4*panel, (*float32)(c), 4*ldc, tiles, add, ahead)
}

func avx2Pack(dst unsafe.Pointer, width int, src unsafe.Pointer, elem Elem, lane, step, lanes, k int, alpha float32) {
	const vec = 8
	if step == elem.Size() {
		for i := 0; i < width; i += vec {
			rows := max(0, min(vec, lanes-i))
			avx2Transposes[elem]((*float32)(at(dst, 4*i)), 4*width, (*byte)(at(src, min(i, lanes-1)*lane)), lane, rows, k, alpha)
		}
		return
	}
	for i := 0; i < width; i += 2 * vec {
		to, from, n := (*float32)(at(dst, 4*i)), (*byte)(at(src, i*lane)), min(2*vec, lanes-i)
		switch {
		case n <= 0:
			for t := range k {
				clear(unsafe.Slice((*float32)(at(dst, 4*(t*width+i))), min(2*vec, width-i)))
			}
		case n == 2*vec:
			avx2Copies[elem](to, 4*width, from, step, n, k, alpha)
		default:
			avx2CopyEdges[elem][min(1, (width-i-1)/vec)](to, 4*width, from, step, n, k, alpha)
		}
	}
}

func avx2Across(dst unsafe.Pointer, panel int, src unsafe.Pointer, elem Elem, step, panels, k int) {
	avx2Acrosses[elem]((*float32)(dst), 4*panel, (*byte)(src), step, panels, k)
}

func avx2Dots(rows, k int, x unsafe.Pointer, ldx int, w unsafe.Pointer, elem Elem, ldw, n int, out unsafe.Pointer, ldo int) {
	avx2DotRows[elem][rows](k, (*float32)(x), 4*ldx, (*byte)(w), ldw, n, (*float32)(out), 4*ldo)
}

func avx2Short(k int, x, w unsafe.Pointer, ldw, n int, c unsafe.Pointer, alpha float32) {
	short256(k, (*float32)(x), (*byte)(w), ldw, n, (*float32)(c), alpha)
}

func avx2Direct(rows, k int, a unsafe.Pointer, arow, acol int, b unsafe.Pointer, elem Elem, ldb int, c unsafe.Pointer, ldc, cols int, alpha float32) {
	const edge = 16
	width, direct := 32, avx2Directs[elem][rows]
	if rows > 2 {
		width = 16
	}
	for j := 0; j < cols; j += width {
		if cols-j < width {
			width, direct = edge, avx2DirectEdges[elem][rows]
		}
		direct(k, (*float32)(a), arow, acol, (*byte)(at(b, j*elem.Size())), ldb, (*float32)(at(c, 4*j)), 4*ldc, min(width, cols-j), alpha)
	}
}

func avx2Outer(rows, k int, a unsafe.Pointer, step int, b unsafe.Pointer, ldb, ahead, apart int, c unsafe.Pointer, ldc, cols int, alpha float32) {
	const edge = 8
	if cols == outerCols256[rows] {
		avx2Outers[rows](k, (*float32)(a), step, (*float32)(b), ldb, ahead, apart, (*float32)(c), 4*ldc, cols, alpha)
		return
	}
	for j := 0; j < cols; j += edge {
		avx2OuterEdges[rows](k, (*float32)(a), step, (*float32)(at(b, 4*j)), ldb, ahead, apart, (*float32)(at(c, 4*j)), 4*ldc, min(edge, cols-j), alpha)
	}
}

func avx2Strip(cols, k int, x unsafe.Pointer, ldx int, w, c unsafe.Pointer, ldc, ahead int, alpha float32) {
	avx2Strips[cols](k, (*float32)(x), 4*ldx, (*float32)(w), (*float32)(c), 4*ldc, ahead, alpha)
}

func avx2Spread(cols, k int, x unsafe.Pointer, ldx int, w, c unsafe.Pointer, ldc, ahead int, alpha float32) {
	avx2Spreads[ceil(cols, 4)](k, (*float32)(x), 4*ldx, (*float32)(w), (*float32)(c), 4*ldc, cols, ahead, alpha)
}

func avx2SpreadZip(w unsafe.Pointer, cols, k int) {
	switch {
	case cols <= 4:
		fanZip256x4((*float32)(w), ceil(k, 4))
	case cols <= 8:
		fanZip256x8((*float32)(w), ceil(k, 2))
	}
}
