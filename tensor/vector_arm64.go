//go:build arm64 && !purego

package tensor

import (
	"os"
	"unsafe"
)

// choose returns NEON, which every machine supports, or plain Go if the
// environment selects it.
func choose() isa {
	if os.Getenv("LORAFUSE_CPU") == portable.String() {
		return portable
	}
	return neon
}

// available lists the instruction sets of this machine, best last.
func available() []isa { return []isa{portable, neon} }

// group is the number of elements that a kernel processes at once.
const group = 16

// vectorWiden converts whole groups of elements and returns their number, 0 if
// there is no kernel. It calls kernels by name, so that the compiler can tell
// that they do not retain pointers and may keep arguments on the stack.
func vectorWiden(dst []float32, src []byte, d DType) int {
	n := len(dst) / group * group
	if n == 0 || active == portable {
		return 0
	}
	to, from := (*byte)(unsafe.Pointer(unsafe.SliceData(dst))), unsafe.SliceData(src)
	switch d {
	case F16:
		widenF16NEON(to, from, n)
	case BF16:
		widenBF16NEON(to, from, n)
	default:
		return 0
	}
	return n
}

// vectorNarrow is the inverse of vectorWiden.
func vectorNarrow(dst []byte, src []float32, d DType) int {
	n := len(src) / group * group
	if n == 0 || active == portable {
		return 0
	}
	to, from := unsafe.SliceData(dst), (*byte)(unsafe.Pointer(unsafe.SliceData(src)))
	switch d {
	case F16:
		narrowF16NEON(to, from, n)
	case BF16:
		narrowBF16NEON(to, from, n)
	default:
		return 0
	}
	return n
}
