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

	// The block types of other programs: those of GGUF files, which are read in place, laid
	// out as ggml does, and those of GPTQ and AWQ checkpoints: Z4 and Z8 have codes of up to 4
	// and 8 bits, an f16 scale and an integer zero point.
	Q4_0
	Q4_1
	Q5_0
	Q5_1
	Q8_0
	Q2_K
	Q3_K
	Q4_K
	Q5_K
	Q6_K
	MXFP4
	Z4
	Z8
)

// QuantBlock is the number of elements per block of Q8, NF4 and FP4.
const QuantBlock = 64

// foreign has the elements and bytes per block of the types from Q4_0 on, by type.
var foreign = [...]struct{ elements, bytes int }{
	Q4_0:  {32, 18},
	Q4_1:  {32, 20},
	Q5_0:  {32, 22},
	Q5_1:  {32, 24},
	Q8_0:  {32, 34},
	Q2_K:  {256, 84},
	Q3_K:  {256, 110},
	Q4_K:  {256, 144},
	Q5_K:  {256, 176},
	Q6_K:  {256, 210},
	MXFP4: {32, 17},
	Z4:    {32, 19},
	Z8:    {32, 35},
}

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
	Q4_0:    {"Q4_0", 0},
	Q4_1:    {"Q4_1", 0},
	Q5_0:    {"Q5_0", 0},
	Q5_1:    {"Q5_1", 0},
	Q8_0:    {"Q8_0", 0},
	Q2_K:    {"Q2_K", 0},
	Q3_K:    {"Q3_K", 0},
	Q4_K:    {"Q4_K", 0},
	Q5_K:    {"Q5_K", 0},
	Q6_K:    {"Q6_K", 0},
	MXFP4:   {"MXFP4", 0},
	Z4:      {"Z4", 0},
	Z8:      {"Z8", 0},
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

// Quantized reports whether d is a type of weights in blocks. Such matrices are only
// used in matrix multiplications, and converted by package quant.
func (d DType) Quantized() bool { return d.BlockBytes() > 0 }

// Foreign reports whether d is a block type of another program. Devices widen a few rows
// of such a matrix before they multiply with them.
func (d DType) Foreign() bool { return d >= Q4_0 && int(d) < len(dtypes) }

// BlockElements returns the number of elements of a block, 1 for types that are not
// quantized.
func (d DType) BlockElements() int {
	switch {
	case d.Foreign():
		return foreign[d].elements
	case d == Q8, d == NF4, d == FP4:
		return QuantBlock
	}
	return 1
}

// BlockBytes returns the number of bytes of a block. It is 0 for types that are not
// quantized.
func (d DType) BlockBytes() int {
	switch {
	case d.Foreign():
		return foreign[d].bytes
	case d == Q8:
		return QuantBlock + 4
	case d == NF4, d == FP4:
		return QuantBlock/2 + 4
	}
	return 0
}

// Bytes returns the number of bytes of n elements. For a quantized type it is
// an integral number of blocks.
func (d DType) Bytes(n int) int {
	if b := d.BlockBytes(); b > 0 {
		each := d.BlockElements()
		return (n + each - 1) / each * b
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
