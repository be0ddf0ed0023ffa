package gputest

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/graph"
	"github.com/lorafuse/lorafuse/internal/ir"
	"github.com/lorafuse/lorafuse/tensor"
)

// headTypes lists the types of a head's weights, with row lengths that are and are not aligned for wide loads.
var headTypes = []struct {
	dtype tensor.DType
	width int
}{
	{tensor.F32, 24}, {tensor.BF16, 24}, {tensor.F16, 24}, {tensor.Q8, 24}, {tensor.NF4, 24}, {tensor.FP4, 24},
	{tensor.F32, 33}, {tensor.BF16, 20}, {tensor.F16, 21}, {tensor.Q8, 64}, {tensor.NF4, 64}, {tensor.FP4, 128},
}

// head is a case of 200 rows, two thirds of which have one of 1120 labels.
type head struct {
	*values
	x, w, labels graph.Tensor
}

func newHead(d tensor.DType, width int) head {
	v := newValues(3)
	return head{v, v.floats(tensor.F32, 1, 200, width), v.floats(d, 0.3, 1120, width), v.labels(200, 1120)}
}

func (h head) loss() graph.Tensor {
	return h.g.Of(h.g.IR().LinearCrossEntropy(h.x.Value(), h.w.Value(), h.labels.Value()))
}

// grad returns the gradient for a quarter of the loss, and the loss.
func (h head) grad() (dx, loss graph.Tensor) {
	d := h.g.IR().Apply(ir.LinearCrossEntropyGrad, nil, h.x.Value(), h.w.Value(), h.labels.Value(), h.g.Const(0.25).Value())
	return h.g.Of(d), h.g.Of(h.g.IR().Out(d, 1))
}

// Head checks a head that processes its rows in several groups and splits the products of gradients into parts.
func Head(t *testing.T, dev backend.Device) {
	for _, c := range headTypes[:6] {
		h := newHead(c.dtype, c.width)
		dx, loss := h.grad()
		h.check(t, dev, 1e-5, dx, loss, h.loss())
	}
}

// HeadRounded checks that a device of precision bf16 rounds the operands of products, and nothing else.
func HeadRounded(t *testing.T, dev backend.Device) {
	for _, c := range headTypes {
		h := newHead(c.dtype, c.width)
		dx, loss := h.grad()
		outs := []graph.Tensor{dx, loss, h.loss()}
		got := h.on(t, dev, outs)
		require.Equal(t, got, h.on(t, dev, outs), "a second run")
		wantX, wantLoss := h.rounded()
		for i, limit := range map[int]float64{1: 1e-5, 2: 1e-5} {
			require.InEpsilon(t, wantLoss, got[i][0], limit, "%v, %d wide", c.dtype, c.width)
		}
		squares := 0.0
		for _, w := range wantX {
			squares += w * w
		}
		rms := math.Sqrt(squares / float64(len(wantX)))
		for i, w := range wantX {
			if d := math.Abs(float64(got[0][i]) - w); !(d <= 1e-4*(math.Abs(w)+rms)) {
				require.Failf(t, "wrong", "%v, %d wide, element %d: %v, expected %v", c.dtype, c.width, i, got[0][i], w)
			}
		}
	}
}

// rounded computes the results of grad with rounded factors of products.
func (h head) rounded() (dx []float64, loss float64) {
	round := func(x float64) float64 { return float64(tensor.BF16ToFloat32(tensor.Float32ToBF16(float32(x)))) }
	in := func(i int) []float64 {
		all := h.hosts[[]string{"in0", "in1", "in2"}[i]].Data
		if i == 2 {
			return all
		}
		out := make([]float64, len(all))
		for j, x := range all {
			out[j] = round(x)
		}
		return out
	}
	x, w, labels := in(0), in(1), in(2)
	n := len(labels)
	d := len(x) / n
	vocabulary := len(w) / d
	dx = make([]float64, len(x))
	p := make([]float64, vocabulary)
	for i, y := range labels {
		if y < 0 {
			continue
		}
		most, sum := math.Inf(-1), 0.0
		for j := range p {
			p[j] = 0
			for l := range d {
				p[j] += x[i*d+l] * w[j*d+l]
			}
			most = max(most, p[j])
		}
		label := p[int(y)]
		for j := range p {
			p[j] = math.Exp(p[j] - most)
			sum += p[j]
		}
		loss += most + math.Log(sum) - label
		for j := range p {
			g := p[j] / sum
			if j == int(y) {
				g--
			}
			g = round(0.25 * g)
			for l := range d {
				dx[i*d+l] += g * w[j*d+l]
			}
		}
	}
	return dx, loss
}
