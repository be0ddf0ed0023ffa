//go:build amd64 && !purego

package gemm

import "unsafe"

// piecesTile computes a tile whose A has three words for each word of B, or for each three words of B; of their
// products it uses the six that a float32 has bits for. Sums of a block of k are added up before they are added to C,
// as in other float32 kernels.
func piecesTile(rows, k, apart int, a, b, c unsafe.Pointer, ldc, cols int, add bool, bias unsafe.Pointer, ahead int) {
	if cols == amxCols && bias == nil && !add {
		piecesProduct(rows, k, apart, a, b, (*float32)(c), 4*ldc, c, 4*ldc, ahead)
		return
	}
	var sums [amxRows * amxCols]float32
	piecesProduct(rows, k, apart, a, b, &sums[0], 4*amxCols, c, 4*ldc, ahead)
	mergeTile(rows, &sums[0], (*float32)(c), 4*ldc, cols, add, (*float32)(bias))
}

func piecesProduct(rows, k, apart int, a, b unsafe.Pointer, dst *float32, step int, c unsafe.Pointer, ldc, ahead int) {
	config := &amxConfigs[rows][0]
	if rows > amxRows/2 {
		piecesAMXx2(config, rows, k/amxRun, apart/amxRun, (*float32)(a), (*float32)(b), dst, step, (*float32)(c), ldc, ahead)
	} else {
		piecesAMXx1(config, rows, k/amxRun, apart/amxRun, (*float32)(a), (*float32)(b), dst, step, (*float32)(c), ldc, ahead)
	}
}

// piecesPackA packs a panel of a float32 A: one piece of all rows of a run, then
// the next.
func piecesPackA(dst unsafe.Pointer, rows int, src unsafe.Pointer, elem Elem, row, step, k int, alpha float32) (finite bool) {
	return rowsThirds((*float32)(dst), amxLine*rows, pieceCount*amxLine*rows, (*byte)(src), row, rows, k, alpha)
}

// A run of a panel of B that is taken apart: elements along k, and bytes of each piece.
const (
	apartRun   = 2 * amxRun
	apartPiece = 4 * amxRun * amxCols
)

// apartPack is pack for panels of B: the pieces of a run, smallest first, then the pieces of the next run.
func apartPack(dst unsafe.Pointer, width int, src unsafe.Pointer, elem Elem, lane, step, lanes, k int, finiteA bool) (finite bool) {
	finite = true
	var pieces [pieceCount * amxCols * amxLine]byte
	for t := 0; t < k; t += apartRun {
		run := min(apartRun, k-t)
		if elem == F32 {
			finite = apartRunOf(dst, at(src, t*step), lane, step, lanes, run, finiteA, &pieces) && finite
		} else {
			finite = apartWidened(dst, at(src, t*step), elem, lane, step, lanes, run, finiteA, &pieces) && finite
		}
		dst = at(dst, pieceCount*apartPiece)
	}
	return finite
}

// apartRunOf packs a run of float32. Rows with contiguous k are split in place and then transposed.
func apartRunOf(dst, src unsafe.Pointer, lane, step, lanes, k int, finiteA bool, pieces *[pieceCount * amxCols * amxLine]byte) (finite bool) {
	if lane == F32.Size() {
		return apartColumns(dst, src, step, lanes, k, finiteA)
	}
	const vec = amxCols / 2
	from := unsafe.Pointer(pieces)
	finite = finiteA && rowsFinite((*float32)(from), amxLine*lanes, 0, (*byte)(src), lane, lanes, k, 1)
	if !finite {
		finite = rowsThirds((*float32)(from), amxLine*lanes, 0, (*byte)(src), lane, lanes, k, 1)
	}
	for p := range pieceCount {
		to, from := at(dst, (pieceCount-1-p)*apartPiece), at(from, p*amxLine*lanes)
		for i := 0; i < amxCols; i += vec {
			pairs512Raw((*float32)(at(to, 4*i)), 4*amxCols, (*byte)(at(from, min(i, lanes-1)*amxLine)), amxLine, max(0, min(vec, lanes-i)), apartRun, 1)
		}
	}
	return finite
}

// apartColumns packs a run of rows with contiguous lanes.
func apartColumns(dst, src unsafe.Pointer, step, lanes, k int, finiteA bool) (finite bool) {
	if lanes < amxCols || k < apartRun {
		const width = 4 * amxCols
		var whole [apartRun * amxCols]float32
		copy512F32x2(&whole[0], width, (*byte)(src), step, lanes, k, 1)
		return apartPanels(dst, 0, unsafe.Pointer(&whole), width, 1, finiteA)
	}
	return apartPanels(dst, 0, src, step, 1, finiteA)
}

// apartPanels packs a run of whole panels.
func apartPanels(dst unsafe.Pointer, panel int, src unsafe.Pointer, step, panels int, finiteA bool) (finite bool) {
	return finiteA && acrossFinite((*float32)(dst), 4*panel, (*byte)(src), step, panels, apartRun) ||
		acrossThirds((*float32)(dst), 4*panel, (*byte)(src), step, panels, apartRun)
}

// apartWidened packs a run of 16 bits each.
func apartWidened(dst, src unsafe.Pointer, elem Elem, lane, step, lanes, k int, finiteA bool, pieces *[pieceCount * amxCols * amxLine]byte) (finite bool) {
	var wide [apartRun * amxCols]float32
	to, width := unsafe.Pointer(&wide[0]), 4*amxCols
	if lane == elem.Size() {
		widenRows512(&wide[0], width, src, elem, step, lanes, k)
		return apartRunOf(dst, to, F32.Size(), width, lanes, k, finiteA, pieces)
	}
	widenRows512(&wide[0], width, src, elem, lane, k, lanes)
	return apartRunOf(dst, to, width, F32.Size(), lanes, k, finiteA, pieces)
}

// widenRows512 writes rows of at most 32 elements as float32. It calls what is in
// avx512Copies by name, since dst would escape from the stack otherwise.
func widenRows512(dst *float32, width int, src unsafe.Pointer, elem Elem, step, cols, rows int) {
	if elem == F16 {
		copy512F16x2(dst, width, (*byte)(src), step, cols, rows, 1)
	} else {
		copy512BF16x2(dst, width, (*byte)(src), step, cols, rows, 1)
	}
}

// apartAcross implements across for panels of B.
func apartAcross(dst unsafe.Pointer, panel int, src unsafe.Pointer, elem Elem, step, panels, k int, finiteA bool) {
	var pieces [pieceCount * amxCols * amxLine]byte
	for t := 0; t < k; t += apartRun {
		from, to := at(src, t*step), at(dst, t/apartRun*pieceCount*apartPiece)
		if elem != F32 {
			for p := range panels {
				apartWidened(at(to, 4*p*panel), at(from, p*amxCols*elem.Size()), elem, elem.Size(), step, amxCols, apartRun, finiteA, &pieces)
			}
			continue
		}
		apartPanels(to, panel, from, step, panels, finiteA)
	}
}
