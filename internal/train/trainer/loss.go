package trainer

import (
	"context"

	"github.com/lorafuse/lorafuse/graph"
	"github.com/lorafuse/lorafuse/internal/data"
	"github.com/lorafuse/lorafuse/internal/model"
	"github.com/lorafuse/lorafuse/internal/nn"
	"github.com/lorafuse/lorafuse/internal/train/events"
	"github.com/lorafuse/lorafuse/tensor"
)

// Loss is the objective of training steps. Only Name and Emit are required.
type Loss struct {
	Name string // identifies what the functions emit, with all settings: hosts cache programs by it
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

	// Correct emits the number of right labels of an evaluation batch, f32, if Right is nil. Nil
	// means that it does not count them.
	Correct func(b *nn.Builder, out model.Outputs) graph.Tensor

	// Reference emits one number for each text of a batch, which the caller computes with
	// the model without an adapter and adds to the batch. Nil for losses without a
	// reference.
	Reference func(b *nn.Builder, out model.Outputs) graph.Tensor

	Whole   string // why cutting a micro-batch would change the result, or empty
	Smaller string // how to reduce the memory of the smallest plan; empty: use shorter rows
}

// HasAccuracy reports whether evaluations count what is right.
func (l Loss) HasAccuracy() bool { return l.Right != nil || l.Correct != nil }

// Axes returns the maximum sizes of the axes of batches.
func (l Loss) Axes(tokens int) map[string]int {
	if l.Bounds == nil {
		return map[string]int{nn.Tokens: tokens}
	}
	return l.Bounds(tokens)
}

// Prepare adds the inputs of the loss to a batch.
func (l Loss) Prepare(b *data.Batch) {
	if l.Mark != nil {
		l.Mark(b)
	}
}

// LossOf returns the loss that models emit for a task. Evaluations of the next token count the
// tokens that have the largest logit.
func LossOf(task model.Task) Loss {
	l := Loss{Name: string(task), Emit: func(b *nn.Builder, out model.Outputs) (loss, sums graph.Tensor) {
		return out.Loss(b, task), graph.Tensor{}
	}}
	if task == model.NextToken {
		l.Correct = func(b *nn.Builder, out model.Outputs) graph.Tensor {
			return out.Head.Correct(b.Input(nn.Labels, tensor.I32, b.Axis(nn.Tokens)))
		}
	}
	return l
}

// Names of the values that passes of losses write.
const (
	sumsName   = "loss.sums"
	evalLoss   = "eval.loss"
	evalSums   = "eval.sums"
	evalScores = "eval.scores"
	evalRight  = "eval.right"
)

// Totals returns the sums of a step: the loss, followed by Sums numbers.
func (l Loss) Totals() []Sum {
	sums := []Sum{{Name: LossSum, Size: 1}}
	if l.Sums > 0 {
		sums = append(sums, Sum{Name: sumsName, Size: l.Sums})
	}
	return sums
}

// Training returns the pass of micro-batches of at most tokens tokens.
func (l Loss) Training(tokens int) *Pass {
	return &Pass{Name: "loss.training " + l.Name, Bounds: l.Axes(tokens), Emit: func(e *Emitter) {
		loss, sums := l.Emit(e.Builder, e.Out)
		if l.Sums > 0 {
			e.Sum(sumsName, sums)
		}
		e.Sum(LossSum, loss)
		e.Backward(loss, e.Trained())
	}}
}

// Evaluation returns the pass of evaluation batches of at most tokens tokens.
func (l Loss) Evaluation(tokens int) *Pass {
	return &Pass{Name: "loss.evaluation " + l.Name, Bounds: l.Axes(tokens), Forward: true, Emit: func(e *Emitter) {
		loss, sums := l.Emit(e.Builder, e.Out)
		e.Result(evalLoss, loss)
		if l.Sums > 0 {
			e.Result(evalSums, sums)
		}
		if l.Scores != nil {
			e.Result(evalScores, l.Scores(e.Builder, e.Out))
		}
		if l.Correct != nil {
			e.Result(evalRight, l.Correct(e.Builder, e.Out))
		}
	}}
}

// Evaluate runs the evaluation pass p of a loss on a batch. It returns the loss, summed over the
// labels, and the number of correct rows or labels if the loss counts them.
func (t *Trainer) Evaluate(ctx context.Context, l Loss, p *Pass, b *data.Batch, given nn.Arrays) (loss float64, right int, err error) {
	var sum, correct [1]float32
	outputs := []Output{{evalLoss, sum[:]}}
	sums, scores := make([]float32, l.Sums), make([]float32, b.Rows()*l.PerRow)
	if l.Sums > 0 {
		outputs = append(outputs, Output{evalSums, sums})
	}
	if l.Scores != nil {
		outputs = append(outputs, Output{evalScores, scores})
	}
	if l.Correct != nil {
		outputs = append(outputs, Output{evalRight, correct[:]})
	}
	if _, err := t.Compute(ctx, p, given, b.Longest(), outputs...); err != nil {
		return 0, 0, err
	}
	right = int(correct[0])
	if l.Right != nil {
		right = l.Right(b, sums, scores)
	}
	return float64(sum[0]), right, nil
}
