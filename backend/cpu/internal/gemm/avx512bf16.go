//go:build amd64 && !purego

package gemm

import "unsafe"

// avx512BF16 is avx512 with products of bfloat16 where a call allows them.
var avx512BF16 = func() kernels {
	k := avx512
	k.isa, k.limits = AVX512BF16, limitsHere(AVX512BF16)
	k.pairs = &kernels{
		isa: AVX512BF16,
		panelKernels: &panelKernels{
			mr: 12, nr: 32, grain: 1, kc: 1024 + kcRank, smaller: true, pairSize: 2,
			tile: avx512PairsTile, pack: avx512PairsPack, across: avx512PairsAcross,
		},
		inPlace: &inPlaceKernels{multiply: avx512PairsInPlace, panel: avx512PairsPanel},
		strips:  &stripKernels{multiply: avx512PairsStrip, rows: stripRows512, lanes: 16, panel: avx512PairsPanel},
		outer:   &outerKernels{multiply: avx512PairsOuter, cols: outerCols512},
	}
	return k
}()

var (
	avx512PairsTiles = [...]tileAsm{nil, tilePairs512x1, tilePairs512x2, tilePairs512x3, tilePairs512x4, tilePairs512x5, tilePairs512x6,
		tilePairs512x7, tilePairs512x8, tilePairs512x9, tilePairs512x10, tilePairs512x11, tilePairs512x12}
	avx512PairsTransposes = [...]transposeAsm{F32: pairs512F32, F16: pairs512F16, BF16: pairs512BF16}
	avx512PairsAcrosses   = [...]acrossAsm{F32: across512PairsF32, F16: across512PairsF16, BF16: across512PairsBF16}
	avx512PairsStrips     = [...]blockAsm{nil, blockPairs512x1, blockPairs512x2, blockPairs512x3, blockPairs512x4, blockPairs512x5, blockPairs512x6, 8: blockPairs512x8}
	avx512PairsOuters     = [...]outerAsm{nil, outerPairs512x1, outerPairs512x2, outerPairs512x3, outerPairs512x4, outerPairs512x5, outerPairs512x6, outerPairs512x7, outerPairs512x8,
		outerPairs512x9, outerPairs512x10, outerPairs512x11, outerPairs512x12, outerPairs512x13, outerPairs512x14, outerPairs512x15, outerPairs512x16}
	avx512PairsCopies = [...][2]copyAsm{
		F32:  {zip512F32x1, zip512F32x2},
		F16:  {zip512F16x1, zip512F16x2},
		BF16: {zip512BF16x1, zip512BF16x2},
	}
)

func avx512PairsTile(rows, k int, a, b, c unsafe.Pointer, ldc, cols int, add bool, bias unsafe.Pointer, ahead int) {
	avx512PairsTiles[rows](k, (*float32)(a), (*float32)(b), (*float32)(c), 4*ldc, cols, add, (*float32)(bias), ahead)
}

func avx512PairsPack(dst unsafe.Pointer, width int, src unsafe.Pointer, elem Elem, lane, step, lanes, k int, alpha float32) {
	const vec = 16
	if lane == elem.Size() {
		for i := 0; i < width; i += 2 * vec {
			n := max(0, min(2*vec, lanes-i))
			copies := avx512PairsCopies[elem][min(1, (width-i-1)/vec)]
			copies((*float32)(at(dst, 4*i)), 4*width, (*byte)(at(src, min(i, lanes-1)*lane)), step, n, k, alpha)
		}
		return
	}
	transpose := avx512PairsTransposes[elem]
	if elem == BF16 && alpha == 1 {
		transpose = pairs512Raw
	}
	for i := 0; i < width; i += vec {
		rows := max(0, min(vec, lanes-i))
		transpose((*float32)(at(dst, 4*i)), 4*width, (*byte)(at(src, min(i, lanes-1)*lane)), lane, rows, k, alpha)
	}
}

func avx512PairsAcross(dst unsafe.Pointer, panel int, src unsafe.Pointer, elem Elem, step, panels, k int) {
	avx512PairsAcrosses[elem]((*float32)(dst), 4*panel, (*byte)(src), step, panels, k)
}

func avx512PairsStrip(cols, k int, x unsafe.Pointer, ldx int, w, c unsafe.Pointer, ldc, ahead int, alpha float32) {
	avx512PairsStrips[cols](k, (*float32)(x), 4*ldx, (*float32)(w), (*float32)(c), 4*ldc, ahead, alpha)
}

func avx512PairsOuter(rows, k int, a unsafe.Pointer, step int, b unsafe.Pointer, ldb, ahead, apart int, c unsafe.Pointer, ldc, cols int, alpha float32) {
	avx512PairsOuters[rows](k, (*float32)(a), step, (*float32)(b), ldb, ahead, apart, (*float32)(c), 4*ldc, cols, alpha)
}
