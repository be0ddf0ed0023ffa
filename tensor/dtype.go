// Package tensor defines the element types and shapes used in the whole
// project, host tensors as typed views of bytes, and conversions between
// element types.
package tensor

import "fmt"

// DType is the element type of a tensor. The names are the same as in the
// safetensors format. The quantized types, which files do not contain, have
// their own names.
type DType uint8

// The element types. The zero value is Invalid, so that a missing type is
// noticed.
const (
	Invalid DType = iota
	Bool          // one byte, 0 or 1
	U8
	I8
	F8E5M2
	F8E4M3 // the "fn" variant: no infinities
	I16
	U16
	F16
	BF16
	I32
	U32
	F32
	F64
	I64
	U64

	// The quantized types exist only in memory: 64 consecutive elements form a
	// block of codes with one f32 scale, see [DType.Quantized].
	Q8  // signed 8-bit numbers
	NF4 // the 4-bit NormalFloat of QLoRA
	FP4 // the 4-bit float of bitsandbytes
)

// QuantBlock is the number of elements per block of the quantized types.
const QuantBlock = 64

var dtypes = [...]struct {
	name string
	bits int
}{
	Invalid: {"INVALID", 0},
	Bool:    {"BOOL", 8},
	U8:      {"U8", 8},
	I8:      {"I8", 8},
	F8E5M2:  {"F8_E5M2", 8},
	F8E4M3:  {"F8_E4M3", 8},
	I16:     {"I16", 16},
	U16:     {"U16", 16},
	F16:     {"F16", 16},
	BF16:    {"BF16", 16},
	I32:     {"I32", 32},
	U32:     {"U32", 32},
	F32:     {"F32", 32},
	F64:     {"F64", 64},
	I64:     {"I64", 64},
	U64:     {"U64", 64},
	Q8:      {"Q8", 0},
	NF4:     {"NF4", 0},
	FP4:     {"FP4", 0},
}

// Bits returns the number of bits per element. It is 0 for Invalid and for the
// quantized types, whose elements share a scale.
func (d DType) Bits() int {
	if int(d) >= len(dtypes) {
		return 0
	}
	return dtypes[d].bits
}

// Size returns the number of bytes per element, 0 for Invalid and for the quantized
// types.
func (d DType) Size() int { return d.Bits() / 8 }

// Quantized reports whether d is a type of weights in blocks: Q8, NF4 or FP4.
// Such matrices are only used in matrix multiplications, and converted by
// package quant.
func (d DType) Quantized() bool { return d.BlockBytes() > 0 }

// BlockBytes returns the number of bytes of a block of [QuantBlock] elements:
// its codes followed by its scale. It is 0 for types that are not quantized.
func (d DType) BlockBytes() int {
	switch d {
	case Q8:
		return QuantBlock + 4
	case NF4, FP4:
		return QuantBlock/2 + 4
	}
	return 0
}

// Bytes returns the number of bytes of n elements. For a quantized type it is
// an integral number of blocks.
func (d DType) Bytes(n int) int {
	if b := d.BlockBytes(); b > 0 {
		return (n + QuantBlock - 1) / QuantBlock * b
	}
	return n * d.Size()
}

// String returns the name of the type in the safetensors format.
func (d DType) String() string {
	if int(d) >= len(dtypes) {
		return fmt.Sprintf("DType(%d)", uint8(d))
	}
	return dtypes[d].name
}

// IsFloat reports whether d is a floating-point type.
func (d DType) IsFloat() bool {
	switch d {
	case F8E5M2, F8E4M3, F16, BF16, F32, F64:
		return true
	}
	return false
}

// isInteger reports whether d is an integer or boolean type.
func (d DType) isInteger() bool { return d.Bits() > 0 && !d.IsFloat() }

// ParseDType is the inverse of String. It rejects the types of the safetensors format
// that no checkpoint in use has: F4, F6, F8_E8M0 and the FNUZ floats.
func ParseDType(s string) (DType, error) {
	for d, t := range dtypes {
		if t.name == s && d != int(Invalid) {
			return DType(d), nil
		}
	}
	return Invalid, fmt.Errorf("tensor: unknown dtype %q", s)
}
