package lora

import (
	"encoding/binary"
	"unsafe"

	"github.com/lorafuse/lorafuse/tensor"
)

var littleEndian = binary.NativeEndian.Uint16([]byte{1, 0}) == 1

// float32Tensor is values as an F32 tensor, in place on a little-endian
// machine, as a copy on others.
func float32Tensor(values []float32, shape ...int) (tensor.Tensor, error) {
	if !littleEndian {
		return tensor.FromFloat32s(values, shape...)
	}
	t := tensor.Tensor{DType: tensor.F32, Shape: shape, Data: float32Bytes(values)}
	return t, t.Check()
}

// float32Bytes is the memory of values.
func float32Bytes(values []float32) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(values))), 4*len(values))
}
