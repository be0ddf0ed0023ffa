//go:build amd64 && !purego

package gemm

import "unsafe"

type tilesTransposedAsm func(config *byte, k int, a *float32, lane, piece int, b, dst *float32, step int, next uintptr, ldnext int)

// tilesKernels holds the kernels for 1, 3 and 6 products per word, for one register of columns and two.
var tilesKernels = [...][2]tilesTransposedAsm{
	1: {turnedAMXWholex1, turnedAMXWholex2},
	3: {turnedAMXThirdsx1, turnedAMXThirdsx2},
	6: {turnedAMXSixthsx1, turnedAMXSixthsx2},
}

// tilesFetches returns 4 rows if a run has six products, which takes longer, and otherwise 2: see turnedAMX.
func tilesFetches(k, products int) int {
	if products == 6 {
		return k / amxRun * 4
	}
	return k / amxRun * 2
}

// tilesTile adds up its sums before it adds them to others.
func tilesTile(rows, cols, k, products int, a unsafe.Pointer, lane int, b, sums, free unsafe.Pointer, add bool, next uintptr, ldnext int) {
	const width = 4 * amxCols
	dst, piece := sums, amxLine
	if add {
		dst = free
	}
	if lane == 0 {
		lane, piece = amxLine, amxLine*rows
	}
	tilesKernels[products][(cols-1)/(amxCols/2)](&amxConfigs[rows][0], k/amxRun, (*float32)(a), lane, piece, (*float32)(b), (*float32)(dst), width, next, ldnext)
	if add {
		mergeTile(rows, (*float32)(free), (*float32)(sums), width, cols, true, nil)
	}
}

func tilesBack(rows, cols, pieces int, sums, free, c unsafe.Pointer, ldc int, add bool, bias unsafe.Pointer) {
	const width, vec = 4 * amxCols, amxCols / 2
	for i := 0; i < rows; i += vec {
		transpose512F32((*float32)(at(free, 4*i)), width, (*byte)(at(sums, width*i)), width, min(vec, rows-i), pieces*cols, 1)
	}
	for p := pieces - 1; p > 0; p-- { // the least first
		mergeTile(cols, (*float32)(at(free, p*cols*width)), (*float32)(at(free, (p-1)*cols*width)), width, amxCols, true, nil)
	}
	mergeTile(cols, (*float32)(free), (*float32)(c), 4*ldc, rows, add, (*float32)(bias))
}

func tilesAdd(rows, cols int, sums, c unsafe.Pointer, ldc int, add bool, bias unsafe.Pointer) {
	mergeTile(rows, (*float32)(sums), (*float32)(c), 4*ldc, cols, add, (*float32)(bias))
}

// partedRows packs pieceCount pieces of a few rows, all rows of one piece before the rows of the next.
func partedRows(dst, src unsafe.Pointer, rows, row, k int, alpha float32) {
	const vec = amxCols / 2
	var pieces [pieceCount * rowsFew * amxLine]byte
	from := unsafe.Pointer(&pieces)
	for t := 0; t < k; t += apartRun {
		rowsThirds((*float32)(from), amxLine*rows, 0, (*byte)(at(src, t*F32.Size())), row, rows, min(apartRun, k-t), alpha)
		for i := 0; i < pieceCount*rows; i += vec {
			pairs512Raw((*float32)(at(dst, 4*i)), 4*amxCols, (*byte)(at(from, i*amxLine)), amxLine, min(vec, pieceCount*rows-i), apartRun, 1)
		}
		dst = at(dst, apartPiece)
	}
}

// finiteRows packs rows for a panel whose B is taken apart too.
func finiteRows(dst unsafe.Pointer, rows int, src unsafe.Pointer, row, k int, alpha float32) bool {
	return rowsFinite((*float32)(dst), amxLine*rows, pieceCount*amxLine*rows, (*byte)(src), row, rows, k, alpha)
}
