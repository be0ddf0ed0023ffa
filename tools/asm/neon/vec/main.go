// Command vec generates the arm64 kernels of internal/vec. Run it with go generate in that package.
//
// A kernel is a formula over groups of registers, the same as in tools/asm/vec for amd64. map.go and reduce.go emit the
// loops and tails.
package main

import "github.com/lorafuse/lorafuse/tools/asm/neon/arm64"

// V and R are the registers of the kernels.
type (
	V = arm64.V
	R = arm64.R
)

var file *arm64.File

func main() {
	file = arm64.New("arm64 && !purego")
	arithmetic()
	reductions()
	exponentials()
	unary()
	activations()
	norms()
	rotary()
	adamW()
	dropout()
	for n := 1; n <= 2; n++ {
		dotRows(n)
		addRows(n)
	}
	file.Write()
}
