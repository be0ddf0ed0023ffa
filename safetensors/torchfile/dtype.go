package torchfile

import "github.com/lorafuse/lorafuse/safetensors"

// dtype is an element type of PyTorch.
type dtype struct {
	name  global
	bytes int64             // size of an element, 0 if tensors of the type cannot be saved
	as    safetensors.DType // Invalid if safetensors has no such type
	// float is the size of the floating-point numbers in an element, 0 for
	// integers. An element of a complex type consists of two.
	float int
}

// unit returns the number of bytes that a byte-order conversion reverses.
func (d *dtype) unit() int {
	if d.complex() {
		return d.float
	}
	return int(d.bytes)
}

func (d *dtype) complex() bool { return d.float > 0 && d.bytes == 2*int64(d.float) }

// paired reports whether an element in PyTorch corresponds to two elements in
// safetensors.
func (d *dtype) paired() bool { return d.as == safetensors.F4 }

// dtypes lists all element types of PyTorch. The types without a counterpart in
// safetensors are included so that errors can distinguish them from mistakes,
// and so that a checkpoint may mention them.
var dtypes = map[global]*dtype{}

func init() {
	for _, d := range []dtype{
		{"torch.bool", 1, safetensors.Bool, 0},
		{"torch.uint8", 1, safetensors.U8, 0},
		{"torch.int8", 1, safetensors.I8, 0},
		{"torch.uint16", 2, safetensors.U16, 0},
		{"torch.int16", 2, safetensors.I16, 0},
		{"torch.uint32", 4, safetensors.U32, 0},
		{"torch.int32", 4, safetensors.I32, 0},
		{"torch.uint64", 8, safetensors.U64, 0},
		{"torch.int64", 8, safetensors.I64, 0},
		{"torch.float16", 2, safetensors.F16, 2},
		{"torch.bfloat16", 2, safetensors.BF16, 2},
		{"torch.float32", 4, safetensors.F32, 4},
		{"torch.float64", 8, safetensors.F64, 8},
		{"torch.complex64", 8, safetensors.C64, 4},
		{"torch.complex128", 16, safetensors.Invalid, 8},
		{"torch.complex32", 4, safetensors.Invalid, 2},
		{"torch.bcomplex32", 4, safetensors.Invalid, 2},
		{"torch.float8_e5m2", 1, safetensors.F8E5M2, 1},
		{"torch.float8_e4m3fn", 1, safetensors.F8E4M3, 1},
		{"torch.float8_e5m2fnuz", 1, safetensors.F8E5M2FNUZ, 1},
		{"torch.float8_e4m3fnuz", 1, safetensors.F8E4M3FNUZ, 1},
		{"torch.float8_e8m0fnu", 1, safetensors.F8E8M0, 1},
		{"torch.float4_e2m1fn_x2", 1, safetensors.F4, 1},
		{name: "torch.bits8"}, {name: "torch.bits16"},
		{name: "torch.bits1x8"}, {name: "torch.bits2x4"}, {name: "torch.bits4x2"},
		{name: "torch.int1"}, {name: "torch.int2"}, {name: "torch.int3"}, {name: "torch.int4"},
		{name: "torch.int5"}, {name: "torch.int6"}, {name: "torch.int7"},
		{name: "torch.uint1"}, {name: "torch.uint2"}, {name: "torch.uint3"}, {name: "torch.uint4"},
		{name: "torch.uint5"}, {name: "torch.uint6"}, {name: "torch.uint7"},
	} {
		dtypes[d.name] = &d
	}
}

// storageClasses maps the name of a storage class, without its module, to its
// element type. PyTorch has stopped adding such classes; tensors of newer types
// are views of an UntypedStorage.
var storageClasses = map[string]global{
	"DoubleStorage":        "torch.float64",
	"FloatStorage":         "torch.float32",
	"HalfStorage":          "torch.float16",
	"BFloat16Storage":      "torch.bfloat16",
	"LongStorage":          "torch.int64",
	"IntStorage":           "torch.int32",
	"ShortStorage":         "torch.int16",
	"CharStorage":          "torch.int8",
	"ByteStorage":          "torch.uint8",
	"BoolStorage":          "torch.bool",
	"ComplexFloatStorage":  "torch.complex64",
	"ComplexDoubleStorage": "torch.complex128",
}

// storageType returns the element type of a storage class, nil if the name is
// not a storage class.
func storageType(class global) *dtype { return classes[class] }

var classes = map[global]*dtype{
	"torch.storage.UntypedStorage":  nil,
	"torch.storage._UntypedStorage": nil, // used by PyTorch 1.11
}

func init() {
	for name := range classes {
		classes[name] = dtypes["torch.uint8"]
	}
	for name, d := range storageClasses {
		classes[global("torch."+name)] = dtypes[d]
		classes[global("torch.cuda."+name)] = dtypes[d]
	}
}
