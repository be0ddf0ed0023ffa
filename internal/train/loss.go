package train

import (
	"github.com/lorafuse/lorafuse/graph"
	"github.com/lorafuse/lorafuse/internal/data"
	"github.com/lorafuse/lorafuse/internal/model"
	"github.com/lorafuse/lorafuse/internal/nn"
	"github.com/lorafuse/lorafuse/internal/train/events"
)

// Loss is the objective of training steps. Only Emit is required.
type Loss struct {
	// Emit emits the loss of a batch, summed over what [data.Batch.LossTokens] counts. If
	// Sums is not 0, it also emits numbers to add up over a step, f32 [Sums].
	Emit func(b *nn.Builder, out model.Outputs) (loss, sums graph.Tensor)
	Sums int
	// Metrics names the means of the sums over the rows of a step.
	Metrics func(means []float64) []events.Scalar

	// Bounds returns the maximum sizes of the axes of batches with the given number of
	// tokens. Nil bounds the tokens only.
	Bounds func(tokens int) map[string]int
	// Mark adds the inputs of the loss to a batch. Nil adds none.
	Mark func(b *data.Batch)

	// Right counts the correct rows of an evaluation batch. Nil means that rows cannot
	// be right or wrong. It reads the sums and the scores: PerRow numbers for each row,
	// which Scores emits.
	Right  func(b *data.Batch, sums, scores []float32) int
	Scores func(b *nn.Builder, out model.Outputs) graph.Tensor
	PerRow int

	// Reference emits one number for each text of a batch, which [Engine.Reference] computes
	// with the model without an adapter. Nil for losses without a reference.
	Reference func(b *nn.Builder, out model.Outputs) graph.Tensor

	Whole   string // why cutting a micro-batch would change the result, or empty
	Smaller string // how to reduce the memory of the smallest plan; empty: use shorter rows
}

// bounds returns the maximum sizes of the axes of batches.
func (l Loss) bounds(tokens int) map[string]int {
	if l.Bounds == nil {
		return map[string]int{nn.Tokens: tokens}
	}
	return l.Bounds(tokens)
}

// mark adds the inputs of the loss to a batch.
func (l Loss) mark(b *data.Batch) {
	if l.Mark != nil {
		l.Mark(b)
	}
}

// LossOf returns the loss that models emit for a task.
func LossOf(task model.Task) Loss {
	return Loss{Emit: func(b *nn.Builder, out model.Outputs) (loss, sums graph.Tensor) {
		return out.Loss(b, task), graph.Tensor{}
	}}
}
