package gemm

import (
	"errors"
	"fmt"
	"strings"
)

// EnvCPU is the environment variable that names the instruction set to use:
// portable, avx2, avx512, avx512bf16 or amx, or neon on arm64. Unset
// or empty, the best one is taken.
const EnvCPU = "LORAFUSE_CPU"

// Errors of Select.
var (
	ErrUnknownISA     = errors.New("unknown instruction set")
	ErrUnsupportedISA = errors.New("instruction set not supported here")
)

// ISA is an instruction set that the kernels are written for.
type ISA uint8

// The instruction sets; for each architecture from the slowest to the fastest. The zero value is supported
// everywhere.
const (
	Portable   ISA = iota // plain Go
	AVX2                  // AVX2, FMA and F16C
	AVX512                // AVX-512 F, BW, DQ and VL
	AVX512BF16            // AVX512 and products of bfloat16
	AMX                   // AVX512BF16, and tiles of bfloat16
	NEON                  // Advanced SIMD of arm64
	isaCount
)

// String returns the name that EnvCPU uses.
func (i ISA) String() string {
	switch i {
	case Portable:
		return "portable"
	case AVX2:
		return "avx2"
	case AVX512:
		return "avx512"
	case AVX512BF16:
		return "avx512bf16"
	case AMX:
		return "amx"
	case NEON:
		return "neon"
	}
	return fmt.Sprintf("ISA(%d)", uint8(i))
}

// Supported lists the instruction sets of this machine and build, slowest
// first.
func Supported() []ISA {
	var have []ISA
	for i := range isaCount {
		if supported(i) {
			have = append(have, i)
		}
	}
	return have
}

// Select returns the named instruction set, or the fastest of this machine if
// name is empty. The error is ErrUnknownISA or ErrUnsupportedISA.
func Select(name string) (ISA, error) {
	have := Supported()
	if name == "" {
		return fastest(have), nil
	}
	for i := range isaCount {
		if i.String() != name {
			continue
		}
		if !supported(i) {
			return Portable, fmt.Errorf("%s=%s: %w (supported: %s)", EnvCPU, name, ErrUnsupportedISA, join(have))
		}
		return i, nil
	}
	return Portable, fmt.Errorf("%s=%s: %w (supported: %s)", EnvCPU, name, ErrUnknownISA, join(have))
}

func join(list []ISA) string {
	names := make([]string, len(list))
	for i, isa := range list {
		names[i] = isa.String()
	}
	return strings.Join(names, ", ")
}
