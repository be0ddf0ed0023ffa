//go:build amd64 && !purego

package gemm

import (
	"encoding/binary"
	"unsafe"
)

// amx extends avx512 with tile multiplications. Machines with AMX also have AVX512_BF16, but there its instructions
// take twice as long as float32 ones; calls that do not use tiles, such as a few rows, therefore do not round
// operands.
var amx = func() kernels {
	k := avx512
	k.isa, k.limits = AMX, limitsHere(AMX)
	floats, inPlace := *k.panelKernels, *k.inPlace
	floats.smaller = false           // not measured on such machines
	inPlace.panelRows = inPlace.rows // reading B again from the second-level cache is slower
	k.panelKernels, k.inPlace = &floats, &inPlace
	k.spread = &spreadKernels{multiply: avx512Spread, zip: avx512SpreadZip, rows: 8, cols: 48}
	ofPairs := transposedKernels{tile: tilesTile, fetches: tilesFetches, back: tilesBack, add: tilesAdd}
	ofPieces := ofPairs
	ofPieces.finite, ofPieces.parted = finiteRows, partedRows
	k.pairs = &kernels{
		isa: AMX, transposed: &ofPairs,
		panelKernels: &panelKernels{
			mr: amxRows, nr: amxCols, grain: amxRows / 2, kc: 256 + kcRank, // a panel of A in the nearest cache
			pairSize: 2, run: amxRun,
			tile: amxTile, tiles: amxTiles, peak: amxPeak,
			pack: amxPack, packA: amxPackA, across: avx512PairsAcross,
		},
	}
	inPieces := func(kc int) *kernels {
		return &kernels{
			isa: AMX, transposed: &ofPieces,
			panelKernels: &panelKernels{
				mr: amxRows, nr: amxCols, grain: amxRows / 2, kc: kc,
				pairSize: 2, run: amxRun,
				pack: amxPack, packA: piecesPackA, across: avx512PairsAcross,
			},
			pieces: &pieceKernels{tile: piecesTile, pack: apartPack, across: apartAcross},
		}
	}
	k.piecesOfA = inPieces(384 + kcRank)
	k.piecesOfBoth = inPieces(128 + kcRank) // three pieces of B in the second-level cache
	return k
}()

// The shape of a tile, two by two registers of 16 rows of 16 words.
const (
	amxRows = 32
	amxCols = 32
	amxRun  = 16
	amxLine = 64 // bytes of a row of a register
)

// amxConfigs says, for the rows of a tile, which shape its registers have.
var amxConfigs = func() (configs [amxRows + 1][amxLine]byte) {
	for rows := 1; rows <= amxRows; rows++ {
		low, high := min(rows, amxRows/2), max(0, rows-amxRows/2)
		config := configs[rows][:]
		const palette = 1
		config[0] = palette
		for i, n := range [...]int{low, low, high, high, low, high, amxRun, amxRun} { // sums, A, B
			if n > 0 {
				binary.LittleEndian.PutUint16(config[16+2*i:], amxLine)
				config[48+i] = byte(n)
			}
		}
	}
	return configs
}()

var (
	amxPackRows    = [...]packRowsAsm{F32: rowsAMXF32, F16: rowsAMXF16, BF16: rowsAMXBF16}
	amxPackColumns = [...]packColumnsAsm{F32: columnsAMXF32, F16: columnsAMXF16, BF16: columnsAMXBF16}
)

// amxTile computes one tile, or part of one.
func amxTile(rows, k int, a, b, c unsafe.Pointer, ldc, cols int, add bool, bias unsafe.Pointer, ahead int) {
	if cols == amxCols && bias == nil {
		amxTiles(rows, k, a, b, 0, c, ldc, 1, add, 0)
		return
	}
	var sums [amxRows * amxCols]float32
	amxTiles(rows, k, a, b, 0, unsafe.Pointer(&sums[0]), amxCols, 1, false, 0)
	mergeTile(rows, &sums[0], (*float32)(c), 4*ldc, cols, add, (*float32)(bias))
}

// amxTiles computes whole tiles.
func amxTiles(rows, k int, a, b unsafe.Pointer, panel int, c unsafe.Pointer, ldc, tiles int, add bool, ahead int) {
	config := &amxConfigs[rows][0]
	if rows > amxRows/2 {
		tilesAMXx2(config, rows, k/amxRun, (*float32)(a), (*float32)(b), 4*panel, (*float32)(c), 4*ldc, tiles, add, ahead)
	} else {
		tilesAMXx1(config, rows, k/amxRun, (*float32)(a), (*float32)(b), 4*panel, (*float32)(c), 4*ldc, tiles, add, ahead)
	}
}

func amxPeak(runs int) { peakAMX(&amxConfigs[amxRows][0], runs) }

// amxPack packs panels of B: it packs pairs as pack does, and pads with zeros to a whole run.
func amxPack(dst unsafe.Pointer, width int, src unsafe.Pointer, elem Elem, lane, step, lanes, k int, alpha float32) {
	avx512PairsPack(dst, width, src, elem, lane, step, lanes, k, alpha)
	words := ceil(k, 2)
	clear(unsafe.Slice((*float32)(at(dst, 4*words*width)), (ceil(words, amxRun)*amxRun-words)*width))
}

// amxPackA packs a panel of A whose rows are interleaved by runs.
func amxPackA(dst unsafe.Pointer, rows int, src unsafe.Pointer, elem Elem, row, step, k int, alpha float32) bool {
	if step == elem.Size() {
		pack := amxPackRows[elem]
		if elem == BF16 && alpha == 1 {
			pack = rowsAMXRaw
		}
		pack((*float32)(dst), amxLine*rows, (*byte)(src), row, rows, k, alpha)
		return true
	}
	const lanes = amxRows / 2
	for i := 0; i < rows; i += lanes {
		amxPackColumns[elem]((*float32)(at(dst, amxLine*i)), amxLine*rows, (*byte)(at(src, row*i)), step, min(lanes, rows-i), k, alpha)
	}
	return true
}
