//go:build (!amd64 && !arm64) || purego

package gemm

func supported(isa ISA) bool { return isa == Portable }

// fastest is the one to take of those that there are.
func fastest(have []ISA) ISA { return have[len(have)-1] }

func kernelsOf(ISA) *kernels { return &portable }
