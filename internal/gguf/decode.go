package gguf

import (
	"encoding/binary"

	"github.com/lorafuse/lorafuse/internal/quant"
	"github.com/lorafuse/lorafuse/tensor"
)

// float32s converts blocks to float32. The length of dst is a multiple of the block
// size of t, and src has as many blocks.
func (t Type) float32s(dst []float32, src []byte) {
	d := types[t].dtype
	if d.Quantized() {
		_ = quant.Dequantize(dst, src, 0, d) // the lengths match
		return
	}
	_ = tensor.ToFloat32(dst, src, d) // so they do here
}

func half(b []byte) float32 { return tensor.F16ToFloat32(binary.LittleEndian.Uint16(b)) }
