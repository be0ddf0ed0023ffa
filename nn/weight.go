package nn

import (
	"fmt"

	"github.com/lorafuse/lorafuse/quant"
	"github.com/lorafuse/lorafuse/safetensors"
	"github.com/lorafuse/lorafuse/tensor"
	"github.com/lorafuse/lorafuse/weights"
)

// Weight is a tensor of a checkpoint: where it lies, or how it is made.
type Weight struct {
	DType  tensor.DType
	Shape  []int
	Source weights.Data
	// View is the tensor of a file that the weight is, or is made of, element by
	// element: a device with memory of its own reads it there, and makes the
	// weight itself where it can. Nil where there is none.
	View *safetensors.View
	// Fill makes the bytes of a weight that lies nowhere as it is used, a
	// quantised one: it calls put with one stretch of them after the other,
	// each at its offset, and ends with the first error. The bytes of a stretch
	// are the caller's again when put returns. Nil where Source has the bytes.
	Fill func(put func(offset int, data []byte) error) error
	// RowScales gives what the rows of a weight in 8-bit floats are multiplied by; nil
	// where there are no scales.
	RowScales func() ([]float32, error)
}

// Size is the number of bytes.
func (w Weight) Size() int {
	n, err := tensor.NumElements(w.Shape)
	if err != nil {
		return 0
	}
	return w.DType.Bytes(n)
}

// Float32s gives the elements as new floats: of a quantised weight, what its
// blocks stand for.
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
		if err != nil || w.RowScales == nil {
			return values, err
		}
		scales, err := w.RowScales()
		if err != nil {
			return nil, err
		}
		row := len(values) / max(1, len(scales))
		for i := range values {
			values[i] *= scales[i/row]
		}
		return values, nil
	}
	if err := t.Check(); err != nil {
		return nil, err
	}
	values := make([]float32, t.NumElements())
	return values, quant.Dequantize(values, t.Data, 0, w.DType)
}
