package gputest

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/graph"
	"github.com/lorafuse/lorafuse/internal/ir"
	"github.com/lorafuse/lorafuse/tensor"
)

// Together checks that sums of products which one launch may compute equal each of them computed alone, bit for bit:
// linear layers of one x with their adapters, gradients of adapters, of few tiles and of many, with biases and addends.
func Together(t *testing.T, dev backend.Device) {
	v := newValues(11)
	type product = ir.Product
	floats := func(shape ...int) ir.Value { return v.floats(tensor.F32, 1, shape...).Value() }
	weight := func(shape ...int) ir.Value { return v.floats(tensor.BF16, 1, shape...).Value() }
	x, h, dy, tall := floats(70, 704), floats(70, 16), floats(70, 130), floats(1500, 40)
	b := floats(130, 16)
	var outs []graph.Tensor
	add := func(bias, addend ir.Value, ps ...product) {
		outs = append(outs, v.g.Of(v.g.IR().Gemm(ps, bias, addend)))
	}
	add(floats(130), 0, product{A: x, B: weight(130, 704), TB: true, Alpha: 1}, product{A: h, B: b, TB: true, Alpha: 0.5})
	add(0, floats(70, 20), product{A: x, B: weight(20, 704), TB: true, Alpha: 2})
	add(floats(900), floats(70, 900), product{A: x, B: weight(900, 704), TB: true, Alpha: 1}, product{A: h, B: floats(900, 16), TB: true, Alpha: 0.25})
	add(0, 0, product{A: dy, B: h, TA: true, Alpha: 1})
	add(0, floats(70, 16), product{A: dy, B: b, Alpha: 1.5})
	add(0, 0, product{A: dy, B: weight(130, 704), Alpha: 1}, product{A: h, B: floats(16, 704), Alpha: 1})
	add(floats(33), 0, product{A: tall, B: floats(1500, 33), TA: true, Alpha: 1})
	add(0, 0, product{A: tall, B: floats(1500, 64), TA: true, Alpha: -1})
	together := v.on(t, dev, outs)
	require.Len(t, together, len(outs))
	for i, out := range outs {
		require.Equal(t, v.on(t, dev, []graph.Tensor{out})[0], together[i], "sum %d", i)
	}
	v.check(t, dev, 0.03, outs...)
}
