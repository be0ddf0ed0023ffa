package gguf

import (
	"fmt"
	"slices"
	"strings"

	"github.com/lorafuse/lorafuse/tensor"
)

// Type is the element type of a tensor, by its number in files (enum ggml_type).
type Type uint32

// The types that this package reads. The first three and Q8_0, Q4_0, Q4_K and Q6_K
// are also written.
const (
	F32   Type = 0
	F16   Type = 1
	BF16  Type = 30
	Q4_0  Type = 2
	Q4_1  Type = 3
	Q5_0  Type = 6
	Q5_1  Type = 7
	Q8_0  Type = 8
	Q2_K  Type = 10
	Q3_K  Type = 11
	Q4_K  Type = 12
	Q5_K  Type = 13
	Q6_K  Type = 14
	MXFP4 Type = 39
)

// blockType describes a type.
type blockType struct {
	name     string
	dtype    tensor.DType                    // Invalid if unsupported
	quantize func(block []byte, x []float32) // nil if not written
}

// superBlock is the number of elements per block of the K types.
const superBlock = 256

// types describes the types of the format. The last ones are known by name only.
var types = map[Type]*blockType{
	F32:   {name: "f32", dtype: tensor.F32, quantize: encodeF32},
	F16:   {name: "f16", dtype: tensor.F16, quantize: encodeF16},
	BF16:  {name: "bf16", dtype: tensor.BF16, quantize: encodeBF16},
	Q4_0:  {name: "q4_0", dtype: tensor.Q4_0, quantize: quantizeQ4_0},
	Q4_1:  {name: "q4_1", dtype: tensor.Q4_1},
	Q5_0:  {name: "q5_0", dtype: tensor.Q5_0},
	Q5_1:  {name: "q5_1", dtype: tensor.Q5_1},
	Q8_0:  {name: "q8_0", dtype: tensor.Q8_0, quantize: quantizeQ8_0},
	Q2_K:  {name: "q2_k", dtype: tensor.Q2_K},
	Q3_K:  {name: "q3_k", dtype: tensor.Q3_K},
	Q4_K:  {name: "q4_k", dtype: tensor.Q4_K, quantize: quantizeQ4K},
	Q5_K:  {name: "q5_k", dtype: tensor.Q5_K},
	Q6_K:  {name: "q6_k", dtype: tensor.Q6_K, quantize: quantizeQ6K},
	MXFP4: {name: "mxfp4", dtype: tensor.MXFP4},

	9: {name: "q8_1"}, 15: {name: "q8_k"}, 16: {name: "iq2_xxs"}, 17: {name: "iq2_xs"}, 18: {name: "iq3_xxs"},
	19: {name: "iq1_s"}, 20: {name: "iq4_nl"}, 21: {name: "iq3_s"}, 22: {name: "iq2_s"}, 23: {name: "iq4_xs"},
	24: {name: "i8"}, 25: {name: "i16"}, 26: {name: "i32"}, 27: {name: "i64"}, 28: {name: "f64"}, 29: {name: "iq1_m"},
	34: {name: "tq1_0"}, 35: {name: "tq2_0"},
}

// String returns the name of the type in lower case, such as q4_k.
func (t Type) String() string {
	if b := types[t]; b != nil {
		return b.name
	}
	return fmt.Sprintf("type %d", uint32(t))
}

// BlockSize returns the number of elements per block and the bytes per block. Both
// are 0 for types that are not read.
func (t Type) BlockSize() (elements, bytes int) {
	d := t.DType()
	if d == tensor.Invalid {
		return 0, 0
	}
	return d.BlockElements(), d.Bytes(d.BlockElements())
}

// Bytes returns the number of bytes of n elements, a whole number of blocks.
func (t Type) Bytes(n int) int {
	elements, bytes := t.BlockSize()
	if elements == 0 {
		return 0
	}
	return n / elements * bytes
}

// DType returns the element type that the bytes of t are, Invalid for types that are
// not read.
func (t Type) DType() tensor.DType {
	if b := types[t]; b != nil {
		return b.dtype
	}
	return tensor.Invalid
}

// IsFloat reports whether elements are stored one by one, as floats.
func (t Type) IsFloat() bool { return t == F32 || t == F16 || t == BF16 }

// Readable lists the names of the types that this package reads.
func Readable() []string { return names(func(b *blockType) bool { return b.dtype != tensor.Invalid }) }

// Writable lists the names of the types that this package writes.
func Writable() []string { return names(func(b *blockType) bool { return b.quantize != nil }) }

func names(want func(*blockType) bool) []string {
	var all []string
	for _, b := range types {
		if want(b) {
			all = append(all, b.name)
		}
	}
	// Floats first, then by name.
	slices.SortFunc(all, func(a, b string) int {
		if qa, qb := strings.Contains(a, "q") || strings.Contains(a, "m"), strings.Contains(b, "q") || strings.Contains(b, "m"); qa != qb {
			if qa {
				return 1
			}
			return -1
		}
		return strings.Compare(a, b)
	})
	return all
}

// ParseType returns the writable type of a name.
func ParseType(name string) (Type, error) {
	for t, b := range types {
		if b.name == strings.ToLower(name) && b.quantize != nil {
			return t, nil
		}
	}
	return 0, fmt.Errorf("gguf: %w: type %q; written: %s", ErrUnsupported, name, strings.Join(Writable(), ", "))
}
