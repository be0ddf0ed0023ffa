// Command gemm generates the arm64 kernels of backend/cpu/internal/gemm. Run it with go generate in that package.
//
// All kernels use fixed registers, like the ones for amd64 in tools/asm/gemm.
package main

import (
	"fmt"

	"github.com/lorafuse/lorafuse/tools/asm/neon/arm64"
)

// V and R are the registers of the kernels.
type (
	V = arm64.V
	R = arm64.R
)

var elems = []arm64.Elem{arm64.F32, arm64.F16, arm64.BF16}

func main() {
	f := arm64.New("arm64 && !purego")
	for rows := 1; rows <= tileRows; rows++ {
		tile(f, rows)
	}
	for rows := 1; rows <= directRows; rows++ {
		direct(f, rows, directVecs(rows))
		direct(f, rows, 1)
	}
	for _, e := range elems {
		for rows := 1; rows <= dotRows; rows++ {
			dots(f, rows, e)
		}
		transpose(f, 4, e)
		transpose(f, 8, e)
		for vecs := 1; vecs <= copyVecs; vecs++ {
			copyLanes(f, vecs, e)
		}
		copyPart(f, e)
	}
	for _, b := range []blocks{q8, q4} {
		unblock(f, b)
		for rows := 1; rows <= dotRows; rows++ {
			dotBlocks(f, rows, b)
		}
	}
	f.Write()
}

var sprintf = fmt.Sprintf
