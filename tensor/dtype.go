// Package tensor holds the element types and shapes that the whole project
// shares, host tensors as typed views over bytes, and the conversions between
// element types.
package tensor

import "fmt"

// DType is the element type of a tensor. Its names are those of the
// safetensors format.
type DType uint8

// The element types. The zero value is Invalid, so that a forgotten type is
// noticed.
const (
	Invalid DType = iota
	Bool          // one byte, 0 or 1
	U8
	I8
	F8E5M2
	F8E4M3
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
)

var dtypes = [...]struct {
	name string
	size int
}{
	Invalid: {"INVALID", 0},
	Bool:    {"BOOL", 1},
	U8:      {"U8", 1},
	I8:      {"I8", 1},
	F8E5M2:  {"F8_E5M2", 1},
	F8E4M3:  {"F8_E4M3", 1},
	I16:     {"I16", 2},
	U16:     {"U16", 2},
	F16:     {"F16", 2},
	BF16:    {"BF16", 2},
	I32:     {"I32", 4},
	U32:     {"U32", 4},
	F32:     {"F32", 4},
	F64:     {"F64", 8},
	I64:     {"I64", 8},
	U64:     {"U64", 8},
}

// Size is the number of bytes of one element, 0 for Invalid.
func (d DType) Size() int {
	if int(d) >= len(dtypes) {
		return 0
	}
	return dtypes[d].size
}

// String is the name that the safetensors format gives the type.
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

// ParseDType is the inverse of String.
func ParseDType(s string) (DType, error) {
	for d, t := range dtypes {
		if t.name == s && d != int(Invalid) {
			return DType(d), nil
		}
	}
	return Invalid, fmt.Errorf("tensor: unknown dtype %q", s)
}
