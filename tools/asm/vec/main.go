// Command vec generates the amd64 kernels of internal/vec. Run it
// by go generate in that package.
//
// A kernel is written once, as a formula over groups of registers, for every
// instruction set: loops, tails and masks come from the frames in map.go and
// reduce.go, registers from avo's allocator.
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
