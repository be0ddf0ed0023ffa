//go:build arm64 && !purego

package gemm

func supported(isa ISA) bool {
	switch isa {
	case NEON:
		return true
	case NEONBF16:
		return hasBF16
	}
	return isa == Portable
}

// fastest returns the fastest supported instruction set.
func fastest(have []ISA) ISA { return have[len(have)-1] }

func kernelsOf(isa ISA) *kernels {
	switch isa {
	case NEON:
		return &neon
	case NEONBF16:
		return &neonBF16
	}
	return &portable
}

// hasBF16 reports whether the machine has FEAT_BF16.
var hasBF16 = findBF16()
