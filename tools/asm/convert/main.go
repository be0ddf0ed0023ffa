// Command convert generates the amd64 kernels of package tensor: conversions
// between float32 and the other element types. Run it by go generate there.
//
// Every kernel takes groups of 16 elements, for which it has one formula: with
// AVX-512 over one register, with AVX2 over two. Loops come from the frame in
// frame.go, registers from avo's allocator.
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
