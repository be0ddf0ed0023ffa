package nn

import (
	"github.com/lorafuse/lorafuse/graph"
	"github.com/lorafuse/lorafuse/internal/ir"
	"github.com/lorafuse/lorafuse/tensor"
)

// ScaleSuffix is appended to the name of a weight in 8-bit floats to name its scales, f32 of the
// shape of [ir.DequantizeAttr.Scales]. A weight without scales is used as stored.
const ScaleSuffix = "_scale"

// widened returns a weight in 8-bit floats as f32, converted on use. The conversion is exact
// except for the rounding of the scaling. On the device the weight stays in 8 bits. Kernels of
// GPUs read these in products (package graph/exec replaces the conversion); other devices
// convert one layer at a time, and again in the backward pass.
func (b *Builder) widened(name string, w graph.Tensor, block ir.DequantizeAttr) graph.Tensor {
	if !b.weights.Has(name + ScaleSuffix) {
		return w.Cast(tensor.F32)
	}
	var shape []int
	for _, d := range block.Scales(w.Type().Shape) {
		shape = append(shape, d.N)
	}
	scale := b.Frozen(name+ScaleSuffix, shape...)
	if block.Rows == 1 && shape[len(shape)-1] == 1 { // each row has one
		return w.Cast(tensor.F32).Mul(scale)
	}
	return w.Dequantize(scale, block)
}

// isFloat8 reports whether a weight of type d is made wide before it is read.
func isFloat8(d tensor.DType) bool { return d == tensor.F8E4M3 }
