//go:build amd64 && !purego

package gemm

import "golang.org/x/sys/cpu"

func supported(isa ISA) bool {
	x := &cpu.X86
	switch isa {
	case AVX2:
		return x.HasAVX2 && x.HasFMA && x.HasF16C
	case AVX512:
		return x.HasAVX512F && x.HasAVX512BW && x.HasAVX512DQ && x.HasAVX512VL && x.HasBMI2
	case AVX512BF16:
		return supported(AVX512) && x.HasAVX512BF16
	case AMX:
		return supported(AVX512BF16) && x.HasAMXTile && x.HasAMXBF16 && tilesAllowed()
	}
	return isa == Portable
}

// fastest returns the fastest supported instruction set. Without AMX, AVX512_BF16 of an Intel processor is skipped:
// it is half as fast as float32 (0.55 of it on a Xeon of 2024).
func fastest(have []ISA) ISA {
	best := have[len(have)-1]
	if best == AVX512BF16 && intel() {
		return AVX512
	}
	return best
}

// intel reports whether this is an Intel processor, for which some other algorithms are faster.
func intel() bool {
	const genu, ineI, ntel = 0x756e6547, 0x49656e69, 0x6c65746e
	b, d, c := vendor()
	return b == genu && d == ineI && c == ntel
}

// limitsHere returns the limits of an instruction set on this processor. Intel's hardware prefetches too little when
// a single row is multiplied: a Xeon of 2024 reads its third-level cache 1.1 to 2 times as fast with rowsInPlace,
// which prefetches.
func limitsHere(isa ISA) limits {
	l := limitsOf[isa]
	l.lateFetch = intel()
	return l
}

func kernelsOf(isa ISA) *kernels {
	switch isa {
	case AVX2:
		return &avx2
	case AVX512:
		return &avx512
	case AVX512BF16:
		return &avx512BF16
	case AMX:
		return &amx
	}
	return &portable
}
