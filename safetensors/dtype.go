package safetensors

import "fmt"

// DType is the element type of a tensor. The types are ordered as in the
// reference implementation, because tensors are written in descending order of
// type, then by name.
type DType uint8

// The element types. The zero value is Invalid, so that a missing type is
// noticed.
const (
	Invalid DType = iota
	Bool          // one byte, 0 or 1 (not checked)
	F4            // 4 bits, E2M1
	F6E2M3        // 6 bits
	F6E3M2        // 6 bits
	U8
	I8
	F8E5M2
	F8E4M3     // the "fn" variant: no infinities
	F8E8M0     // a power of two, the scale of the MX formats
	F8E4M3FNUZ // no infinities, no negative zero
	F8E5M2FNUZ // no infinities, no negative zero
	I16
	U16
	F16  // IEEE 754 binary16
	BF16 // the upper half of a binary32
	I32
	U32
	F32
	C64 // two F32: real and imaginary part
	F64
	I64
	U64
)

var dtypes = [...]struct {
	name string
	bits uint8
}{
	Invalid:    {"INVALID", 0},
	Bool:       {"BOOL", 8},
	F4:         {"F4", 4},
	F6E2M3:     {"F6_E2M3", 6},
	F6E3M2:     {"F6_E3M2", 6},
	U8:         {"U8", 8},
	I8:         {"I8", 8},
	F8E5M2:     {"F8_E5M2", 8},
	F8E4M3:     {"F8_E4M3", 8},
	F8E8M0:     {"F8_E8M0", 8},
	F8E4M3FNUZ: {"F8_E4M3FNUZ", 8},
	F8E5M2FNUZ: {"F8_E5M2FNUZ", 8},
	I16:        {"I16", 16},
	U16:        {"U16", 16},
	F16:        {"F16", 16},
	BF16:       {"BF16", 16},
	I32:        {"I32", 32},
	U32:        {"U32", 32},
	F32:        {"F32", 32},
	C64:        {"C64", 64},
	F64:        {"F64", 64},
	I64:        {"I64", 64},
	U64:        {"U64", 64},
}

// Bits returns the number of bits per element, 0 for Invalid. Elements of F4 and
// the F6 types are smaller than a byte, so not all of them start on byte
// boundaries.
func (d DType) Bits() int {
	if int(d) >= len(dtypes) {
		return 0
	}
	return int(dtypes[d].bits)
}

// String returns the name of the type as written in file headers.
func (d DType) String() string {
	if int(d) >= len(dtypes) {
		return fmt.Sprintf("DType(%d)", uint8(d))
	}
	return dtypes[d].name
}

// ParseDType is the inverse of String. It fails with ErrDType.
func ParseDType(name string) (DType, error) {
	if d := dtypeNamed(name); d != Invalid {
		return d, nil
	}
	return Invalid, fmt.Errorf("safetensors: %s: %w", quote(name), ErrDType)
}

func dtypeNamed(name string) DType {
	for d := Bool; int(d) < len(dtypes); d++ {
		if dtypes[d].name == name {
			return d
		}
	}
	return Invalid
}
