package lora

import (
	"encoding/binary"

	"github.com/lorafuse/lorafuse/tensor"
)

var littleEndian = binary.NativeEndian.Uint16([]byte{1, 0}) == 1

// float32Tensor returns values as an F32 tensor, in place on a little-endian machine,
// as a copy on others.
func float32Tensor(values []float32, shape ...int) (tensor.Tensor, error) {
	if !littleEndian {
		return tensor.FromFloat32s(values, shape...)
	}
	t := tensor.Tensor{DType: tensor.F32, Shape: shape, Data: tensor.BytesOf(values)}
	return t, t.Check()
}
