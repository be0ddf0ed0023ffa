package dit

import (
	"github.com/lorafuse/lorafuse/graph"
	"github.com/lorafuse/lorafuse/internal/ir"
	"github.com/lorafuse/lorafuse/internal/model"
	"github.com/lorafuse/lorafuse/internal/nn"
	"github.com/lorafuse/lorafuse/tensor"
)

// outputs returns the outputs of a transformer with a velocity [predicted tokens, channels].
func outputs(b *nn.Builder, velocity graph.Tensor) model.Outputs {
	return model.Outputs{
		Named:  map[string]graph.Tensor{Velocity: velocity},
		Losses: map[model.Task]model.Loss{FlowMatching: func() graph.Tensor { return flowMatching(b, velocity) }},
	}
}

// flowMatching returns Σ over samples of weight · Σ (velocity − target)². The weights are
// already divided by the number of elements.
func flowMatching(b *nn.Builder, velocity graph.Tensor) graph.Tensor {
	if !velocity.Valid() {
		return velocity
	}
	s, channels := newStream(b, PredictedTokens), velocity.Type().Last()
	n := ir.Static(s.samples)
	off := velocity.Sub(b.Input(Target, tensor.F32, s.rows(), channels))
	squares := off.Mul(off).Reshape(n, s.tokens, channels).Sum(2).Sum(1)
	loss := squares.Mul(b.Input(Weights, tensor.F32, n)).Sum(0)
	b.TrainFor(loss) // the text half of the last block has no effect on the output
	return loss
}
