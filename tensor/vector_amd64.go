//go:build amd64 && !purego

package tensor

import (
	"os"
	"unsafe"

	"golang.org/x/sys/cpu"
)

func choose() isa {
	have := available()
	for _, s := range have {
		if s.String() == os.Getenv("LORAFUSE_CPU") {
			return s
		}
	}
	return have[len(have)-1]
}

// available lists the instruction sets of this machine, best last.
func available() []isa {
	have := []isa{portable}
	x := cpu.X86
	if x.HasAVX2 && x.HasF16C {
		have = append(have, avx2)
		if x.HasAVX512F && x.HasAVX512BW && x.HasAVX512DQ && x.HasAVX512VL {
			have = append(have, avx512)
		}
	}
	return have
}

// Kernels process whole groups of elements; kernels that bypass the cache
// process whole cache lines.
const (
	group = 16
	turn  = 4 * group
	line  = 64
)

// vectorWiden converts whole groups of elements and returns their number, 0 if
// there is no kernel.
func vectorWiden(dst []float32, src []byte, d DType) (done int) {
	size := d.Size()
	// The offset is within both slices, or at their ends.
	p, q := unsafe.Pointer(unsafe.SliceData(dst)), unsafe.Pointer(unsafe.SliceData(src))
	run := func(n int, stream bool) bool {
		return widenGroups((*byte)(unsafe.Add(p, 4*done)), (*byte)(unsafe.Add(q, done*size)), n, stream, d)
	}
	if 4*len(dst) >= streamFrom && active != portable {
		head, ok := untilLine(p, 4)
		if n := (len(dst) - head) / turn * turn; ok && n > 0 {
			portableWiden(dst[:head], src[:head*size], d)
			if done = head; !run(n, true) {
				return 0
			}
			done += n
		}
	}
	if n := (len(dst) - done) / group * group; n > 0 && run(n, false) {
		done += n
	}
	return done
}

// vectorNarrow is the inverse of vectorWiden.
func vectorNarrow(dst []byte, src []float32, d DType) (done int) {
	size := d.Size()
	p, q := unsafe.Pointer(unsafe.SliceData(dst)), unsafe.Pointer(unsafe.SliceData(src))
	run := func(n int, stream bool) bool {
		return narrowGroups((*byte)(unsafe.Add(p, done*size)), (*byte)(unsafe.Add(q, 4*done)), n, stream, d)
	}
	if len(dst) >= streamFrom && active != portable {
		head, ok := untilLine(p, size)
		if n := (len(src) - head) / turn * turn; ok && n > 0 {
			portableNarrow(dst[:head*size], src[:head], d)
			if done = head; !run(n, true) {
				return 0
			}
			done += n
		}
	}
	if n := (len(src) - done) / group * group; n > 0 && run(n, false) {
		done += n
	}
	return done
}

// untilLine returns the number of elements between p and the next cache line;
// ok is false if it is not an integer.
func untilLine(p unsafe.Pointer, size int) (n int, ok bool) {
	gap := int(-uintptr(p) % line)
	return gap / size, gap%size == 0
}

// widenGroups runs the kernel that converts n elements of type d to float32, if
// there is one. It calls every kernel by name, so that the compiler can tell
// that they do not retain pointers and may keep arguments on the stack.
func widenGroups(dst, src *byte, n int, stream bool, d DType) bool {
	switch active {
	case avx512:
		return widenAVX512(dst, src, n, stream, d)
	case avx2:
		return widenAVX2(dst, src, n, stream, d)
	}
	return false
}

// narrowGroups is the inverse of widenGroups.
func narrowGroups(dst, src *byte, n int, stream bool, d DType) bool {
	switch active {
	case avx512:
		return narrowAVX512(dst, src, n, stream, d)
	case avx2:
		return narrowAVX2(dst, src, n, stream, d)
	}
	return false
}
