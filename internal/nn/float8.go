package nn

import (
	"github.com/lorafuse/lorafuse/graph"
	"github.com/lorafuse/lorafuse/internal/ir"
	"github.com/lorafuse/lorafuse/tensor"
)

// ScaleSuffix is appended to the name of a weight in 8-bit floats to name its scales, f32
// [out, n], or [count, out, n] of a stack. Each row has one, or one for each n-th part of it. A
// weight without scales is used as stored.
const ScaleSuffix = "_scale"

// widened returns a weight in 8-bit floats as f32, converted on use. The conversion is exact
// except for the rounding of the scaling. On the device the weight stays in 8 bits. Kernels of
// GPUs read these in products (package graph/exec replaces the conversion); other devices
// convert one layer at a time, and again in the backward pass.
func (b *Builder) widened(name string, w graph.Tensor) graph.Tensor {
	wide := w.Cast(tensor.F32)
	if !b.weights.Has(name + ScaleSuffix) {
		return wide
	}
	shape := w.Type().Shape
	rows, in, count := shape[:len(shape)-1], w.Type().Last(), 1
	each := make([]int, 0, len(shape))
	for _, d := range rows {
		each, count = append(each, d.N), count*d.N
	}
	scale := b.Frozen(name+ScaleSuffix, append(each, -1)...)
	if !scale.Valid() || scale.Type().Last().N == 1 {
		return wide.Mul(scale)
	}
	all, parts := ir.Static(count), scale.Type().Last()
	blocks := wide.Reshape(all, parts, ir.Static(in.N/parts.N))
	return blocks.Mul(scale.Reshape(all, parts, ir.Static(1))).Reshape(shape...)
}

// isFloat8 reports whether a weight of type d is made wide before it is read.
func isFloat8(d tensor.DType) bool { return d == tensor.F8E4M3 }
