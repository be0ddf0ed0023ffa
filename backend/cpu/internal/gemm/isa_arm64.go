//go:build arm64 && !purego

package gemm

func supported(isa ISA) bool { return isa == NEON || isa == Portable }

// fastest returns the fastest supported instruction set.
func fastest(have []ISA) ISA { return have[len(have)-1] }

func kernelsOf(isa ISA) *kernels {
	if isa == NEON {
		return &neon
	}
	return &portable
}
