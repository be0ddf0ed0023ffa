//go:build amd64 && !purego

package gemm

import "unsafe"

type turnedAsm func(config *byte, rows, k int, a, b, dst *float32, step int, next uintptr, ldnext int)

var (
	turnedWhole  = [...]turnedAsm{turnedAMXWholex1, turnedAMXWholex2}
	turnedThirds = [...]turnedAsm{turnedAMXThirdsx1, turnedAMXThirdsx2}
	turnedSixths = [...]turnedAsm{turnedAMXSixthsx1, turnedAMXSixthsx2}
)

// turnFetches is 4 rows with a run that is apart, which takes longer, and else 2: see
// turnedAMX.
func turnFetches(k int, apart bool) int {
	if apart {
		return k / amxRun * 4
	}
	return k / amxRun * 2
}

func turnedPairs(rows, cols, k int, _ bool, a, b, sums, free unsafe.Pointer, add bool, next uintptr, ldnext int) {
	turnedTile(&turnedWhole, rows, cols, k, a, b, sums, free, add, next, ldnext)
}

func turnedPieces(rows, cols, k int, apart bool, a, b, sums, free unsafe.Pointer, add bool, next uintptr, ldnext int) {
	kernels := &turnedThirds
	if apart {
		kernels = &turnedSixths
	}
	turnedTile(kernels, rows, cols, k, a, b, sums, free, add, next, ldnext)
}

// turnedTile is a tile with those kernels. Its sums are added up before they are added
// to others.
func turnedTile(kernels *[2]turnedAsm, rows, cols, k int, a, b, sums, free unsafe.Pointer, add bool, next uintptr, ldnext int) {
	const width = 4 * amxCols
	dst := sums
	if add {
		dst = free
	}
	kernels[(cols-1)/(amxCols/2)](&amxConfigs[rows][0], rows, k/amxRun, (*float32)(a), (*float32)(b), (*float32)(dst), width, next, ldnext)
	if add {
		mergeTile(rows, (*float32)(free), (*float32)(sums), width, amxCols, true, nil)
	}
}

func turnBack(rows, cols int, sums, free, c unsafe.Pointer, ldc int, add bool, bias unsafe.Pointer) {
	const width, vec = 4 * amxCols, amxCols / 2
	for i := 0; i < rows; i += vec {
		transpose512F32((*float32)(at(free, 4*i)), width, (*byte)(at(sums, width*i)), width, min(vec, rows-i), cols, 1)
	}
	mergeTile(cols, (*float32)(free), (*float32)(c), 4*ldc, rows, add, (*float32)(bias))
}

// finiteRows packs rows for a panel of sixths.
func finiteRows(dst unsafe.Pointer, rows int, src unsafe.Pointer, row, k int, alpha float32) bool {
	return rowsFinite((*float32)(dst), amxLine*rows, thirds*amxLine*rows, (*byte)(src), row, rows, k, alpha)
}
