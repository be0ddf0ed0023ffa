// Command convert generates the amd64 kernels of package tensor, which convert between float32 and other element types.
// Run it with go generate in that package.
//
// Every kernel converts groups of 16 elements with one formula, over one register with AVX-512 and over two with AVX2.
// frame.go emits the loops; avo allocates registers.
package main

import (
	"log"

	. "github.com/mmcloughlin/avo/build"
)

func main() {
	log.SetFlags(0)
	ConstraintExpr("amd64,!purego")
	for _, v := range []*isa{avx2, avx512} {
		halves(v)
		smallFloats(v)
		integers(v)
		doubles(v)
	}
	Generate()
}
