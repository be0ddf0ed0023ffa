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
