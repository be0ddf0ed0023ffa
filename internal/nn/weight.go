package nn

import (
	"fmt"

	"github.com/lorafuse/lorafuse/internal/ir"
	"github.com/lorafuse/lorafuse/internal/quant"
	"github.com/lorafuse/lorafuse/internal/weights"
	"github.com/lorafuse/lorafuse/safetensors"
	"github.com/lorafuse/lorafuse/tensor"
)

// Weight is a tensor of a checkpoint: its location, or how to compute it.
type Weight struct {
	DType  tensor.DType
	Shape  []int
	Source weights.Data
	// View is the stored tensor that the weight is, or is converted from element by element. A
	// device with its own memory reads it directly and converts it if it can. Nil means that
	// no stored tensor corresponds to the weight.
	View *safetensors.View
	// Fill computes the bytes of a weight that is not stored in its final form, such as a
	// quantized one. It calls put with consecutive ranges of bytes and their offsets, and
	// stops at the first error. put must not retain data. Nil means that Source has the bytes.
	Fill func(put func(offset int, data []byte) error) error
	// Scales returns the scales of a weight in 8-bit floats. Each block of a matrix has one, see
	// [ir.DequantizeAttr.Scales]. Nil means no scales.
	Scales func() ([]float32, error)
	Block  ir.DequantizeAttr
}

// Size returns the number of bytes.
func (w Weight) Size() int {
	n, err := tensor.NumElements(w.Shape)
	if err != nil {
		return 0
	}
	return w.DType.Bytes(n)
}

// Float32s returns the elements as new floats. Quantized weights are dequantized.
func (w Weight) Float32s() ([]float32, error) {
	t := tensor.Tensor{DType: w.DType, Shape: w.Shape, Data: w.Source.Bytes}
	if w.Fill != nil {
		t.Data = make([]byte, w.Size())
		if err := w.Fill(func(offset int, data []byte) error {
			if offset < 0 || offset+len(data) > len(t.Data) {
				return fmt.Errorf("%d bytes at %d of %d: %w", len(data), offset, len(t.Data), tensor.ErrLength)
			}
			copy(t.Data[offset:], data)
			return nil
		}); err != nil {
			return nil, err
		}
	}
	if !w.DType.Quantized() {
		values, err := t.Float32s()
		if err != nil || w.Scales == nil {
			return values, err
		}
		scales, err := w.Scales()
		if err != nil {
			return nil, err
		}
		rows, columns := w.Shape[len(w.Shape)-2], w.Shape[len(w.Shape)-1]
		for i := range values {
			values[i] *= scales[w.Block.Index(rows, columns, i)]
		}
		return values, nil
	}
	if err := t.Check(); err != nil {
		return nil, err
	}
	values := make([]float32, t.NumElements())
	return values, quant.Dequantize(values, t.Data, 0, w.DType)
}
