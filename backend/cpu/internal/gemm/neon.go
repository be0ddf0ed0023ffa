//go:build arm64 && !purego

package gemm

import "unsafe"

var neon = kernels{
	isa: NEON, limits: limitsOf[NEON],
	panelKernels: &panelKernels{
		mr: 8, nr: 12, grain: 1, kc: 512 + kcRank, pairSize: 1,
		tile: neonTile, pack: neonPack,
	},
	rows: &rowKernels{
		dots: neonDots, dotRows: 3,
		unblock: neonUnblock, dotBlocks: neonDotBlocks,
		direct: neonDirect, directRows: 8,
	},
}

var (
	neonTiles = [...]tileAsm{nil, neonTilex1, neonTilex2, neonTilex3, neonTilex4, neonTilex5, neonTilex6, neonTilex7, neonTilex8}

	neonTransposes4 = [...]transposeAsm{F32: neonTransposeF32x4, F16: neonTransposeF16x4, BF16: neonTransposeBF16x4}
	neonTransposes8 = [...]transposeAsm{F32: neonTransposeF32x8, F16: neonTransposeF16x8, BF16: neonTransposeBF16x8}
	neonCopies      = [...][5]copyAsm{
		F32:  {nil, neonCopyF32x4, neonCopyF32x8, neonCopyF32x12, neonCopyF32x16},
		F16:  {nil, neonCopyF16x4, neonCopyF16x8, neonCopyF16x12, neonCopyF16x16},
		BF16: {nil, neonCopyBF16x4, neonCopyBF16x8, neonCopyBF16x12, neonCopyBF16x16},
	}
	neonParts   = [...]partAsm{F32: neonCopyF32Part, F16: neonCopyF16Part, BF16: neonCopyBF16Part}
	neonDotRows = [...][4]dotsAsm{
		F32:  {nil, neonDotsF32x1, neonDotsF32x2, neonDotsF32x3},
		F16:  {nil, neonDotsF16x1, neonDotsF16x2, neonDotsF16x3},
		BF16: {nil, neonDotsBF16x1, neonDotsBF16x2, neonDotsBF16x3},
	}
	// neonWide are for neonWidth[rows] columns, neonNarrow for 4.
	neonWide = [...]directAsm{nil, neonDirectx1x32, neonDirectx2x32, neonDirectx3x16, neonDirectx4x16,
		neonDirectx5x8, neonDirectx6x8, neonDirectx7x8, neonDirectx8x8}
	neonWidth  = [...]int{0, 32, 32, 16, 16, 8, 8, 8, 8}
	neonNarrow = [...]directAsm{nil, neonDirectx1x4, neonDirectx2x4, neonDirectx3x4, neonDirectx4x4,
		neonDirectx5x4, neonDirectx6x4, neonDirectx7x4, neonDirectx8x4}
)

func neonTile(rows, k int, a, b, c unsafe.Pointer, ldc, cols int, add bool, bias unsafe.Pointer, ahead int) {
	neonTiles[rows](k, (*float32)(a), (*float32)(b), (*float32)(c), 4*ldc, cols, add, (*float32)(bias))
}

// neonPack stores whole vectors. If the last vector of a row is wider than the row, it spills into the next row,
// which must be written later.
func neonPack(dst unsafe.Pointer, width int, src unsafe.Pointer, elem Elem, lane, step, lanes, k int, alpha float32) {
	const vec = 4
	if lane == elem.Size() {
		if k > 0 {
			neonPackCopy(dst, width, src, elem, step, lanes, k, alpha)
		}
		return
	}
	group, transpose := 2*vec, neonTransposes8[elem]
	if width > group && width%group != 0 {
		group, transpose = vec, neonTransposes4[elem]
	}
	for i := 0; i < width; i += group {
		rows := max(0, min(group, lanes-i))
		transpose((*float32)(at(dst, 4*i)), 4*width, (*byte)(at(src, min(i, lanes-1)*lane)), lane, rows, k, alpha)
	}
}

// neonPackCopy is neonPack for contiguous lanes. Vectors that may spill are stored first.
func neonPackCopy(dst unsafe.Pointer, width int, src unsafe.Pointer, elem Elem, step, lanes, k int, alpha float32) {
	const vec, most = 4, 4
	whole := lanes &^ (vec - 1)
	for i, n := whole, lanes-whole; i < width; i, n = i+vec, 0 {
		neonParts[elem]((*float32)(at(dst, 4*i)), 4*width, (*byte)(at(src, min(i, lanes-1)*elem.Size())), step, n, k, alpha)
	}
	for i := 0; i < whole; {
		n := min(most, (whole-i)/vec)
		neonCopies[elem][n]((*float32)(at(dst, 4*i)), 4*width, (*byte)(at(src, i*elem.Size())), step, k, alpha)
		i += n * vec
	}
}

func neonDots(rows, k int, x unsafe.Pointer, ldx int, w unsafe.Pointer, elem Elem, ldw, n int, out unsafe.Pointer, ldo int) {
	neonDotRows[elem][rows](k, (*float32)(x), 4*ldx, (*byte)(w), ldw, n, (*float32)(out), 4*ldo)
}

// neonDirect has kernels for a b of float32, as adapters have it; other types are multiplied in Go.
func neonDirect(rows, k int, a unsafe.Pointer, arow, acol int, b unsafe.Pointer, elem Elem, ldb int, c unsafe.Pointer, ldc, cols int, alpha float32) {
	j := 0
	columns := func(direct directAsm, width int) {
		for ; elem == F32 && j+width <= cols; j += width {
			direct(k, (*float32)(a), arow, acol, (*byte)(at(b, j*elem.Size())), ldb, (*float32)(at(c, 4*j)), 4*ldc, alpha)
		}
	}
	columns(neonWide[rows], neonWidth[rows])
	columns(neonNarrow[rows], 4)
	if j < cols {
		portableDirect(rows, k, a, arow, acol, at(b, j*elem.Size()), elem, ldb, at(c, 4*j), ldc, cols-j, alpha)
	}
}
