// Command gemm generates the amd64 kernels of backend/cpu/internal/gemm. Run it with go generate in that package.
//
// All kernels use fixed registers, because they hold as many sums as the register file allows and depend on the order
// of instructions.
package main

import (
	"flag"

	. "github.com/mmcloughlin/avo/build"
)

func main() {
	part := flag.String("part", "", `"outer" or "amx" for a file of outer, fan and direct, or of the kernels for AMX, else one of the others`)
	flag.Parse()
	ConstraintExpr("amd64,!purego")
	switch *part {
	case "outer":
		outers()
		Generate()
		return
	case "amx":
		amx()
		Generate()
		return
	}
	for _, v := range []*vector{avx512, avx2} {
		v.constants()
		for rows := 1; rows <= v.tileRows; rows++ {
			tile(v, rows, v.tileVecs, false)
			if v == avx2 {
				tilesBeside(v, rows, v.tileVecs)
			}
		}
		for cols := 1; cols <= v.blockCols(); cols++ {
			dotBlock(v, cols, false)
		}
		if v == avx512 {
			dotBlock(v, blockWide, false)
		}
		for _, e := range []elem{f32, f16, bf16} {
			transpose(v, e)
			copyAcross(v, e)
			for _, vecs := range v.copyVecs {
				copyLanes(v, e, vecs, false)
			}
			for vecs := 1; v == avx2 && vecs <= v.tileVecs; vecs++ {
				copyLanes(v, e, vecs, true)
			}
			for rows := 1; rows <= v.dotRows; rows++ {
				dotRows(v, rows, e)
			}
		}
	}
	for rows := 1; rows <= avx512.tileRows; rows++ {
		tile(avx512, rows, avx512.tileVecs, true)
	}
	for cols := 1; cols <= avx512.blockCols(); cols++ {
		dotBlock(avx512, cols, true)
	}
	dotBlock(avx512, blockWide, true)
	for _, e := range []elem{f32, f16, bf16} {
		transposePairs(e, false)
		copyAcrossPairs(e)
		for _, vecs := range avx512.copyVecs {
			copyPairs(e, vecs)
		}
	}
	transposePairs(bf16, true)
	splitRow()
	dotSplit()
	short(avx512)
	short(avx2)
	for _, v := range []*vector{avx512, avx2} {
		for _, b := range []blocks{q8, q4} {
			unblock(v, b)
			deepBlocks(v, b)
			for rows := 1; rows <= v.dotRows; rows++ {
				dotBlocks(v, rows, b)
			}
		}
	}
	for _, g := range gridKinds {
		for _, v := range []*vector{avx512, avx2} {
			if v == avx2 && g.pairs {
				continue
			}
			for rows := 1; rows <= v.gridRows; rows++ {
				grid(v, rows, g)
			}
			if g.elem != f16 { // its layout equals that of float32
				panel(v, g)
			}
		}
	}
	fetch()
	Generate()
}
