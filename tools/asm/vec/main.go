// Command vec generates the amd64 kernels of internal/vec. Run it with go generate in that package.
//
// A kernel is written once for every instruction set, as a formula over groups of registers. map.go and reduce.go emit
// the loops, tails and masks; avo allocates registers.
package main

import (
	"log"

	. "github.com/mmcloughlin/avo/build"
)

func main() {
	log.SetFlags(0)
	ConstraintExpr("amd64,!purego")
	for _, v := range []*isa{avx2, avx512} {
		arithmetic(v)
		reductions(v)
		exponentials(v)
		unary(v)
		activations(v)
		norms(v)
		rotary(v)
		adamW(v)
		dropout(v)
		matrixVector(v)
	}
	Generate()
}
