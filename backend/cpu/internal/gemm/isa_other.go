//go:build (!amd64 && !arm64) || purego

package gemm

func supported(isa ISA) bool { return isa == Portable }

// fastest returns the fastest supported instruction set.
func fastest(have []ISA) ISA { return have[len(have)-1] }

func kernelsOf(ISA) *kernels { return &portable }
