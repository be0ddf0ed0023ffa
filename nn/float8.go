package nn

import (
	"github.com/lorafuse/lorafuse/graph"
	"github.com/lorafuse/lorafuse/tensor"
)

// ScaleSuffix is behind the name of a weight in 8-bit floats for its scales: f32 [out, 1],
// one for each row. Where there are none, numbers are as they are stored.
const ScaleSuffix = "_scale"

// widened is a weight in 8-bit floats as f32, made where it is read: each number is exact
// but for the rounding of its scale. On the device the weight keeps its 8 bits; one layer
// at a time is wide, in backward once more.
func (b *Builder) widened(name string, w graph.Tensor) graph.Tensor {
	wide := w.Cast(tensor.F32)
	if !b.weights.Has(name + ScaleSuffix) {
		return wide
	}
	return wide.Mul(b.Frozen(name+ScaleSuffix, w.Type().Shape[0].N, 1))
}

// isFloat8 reports whether a weight of type d is made wide before it is read.
func isFloat8(d tensor.DType) bool { return d == tensor.F8E4M3 }
