//go:build (!amd64 && !arm64) || purego

package gemm

func supported(isa ISA) bool { return isa == Portable }

func kernelsOf(ISA) *kernels { return &portable }
