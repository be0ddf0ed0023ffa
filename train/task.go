package train

import (
	"github.com/lorafuse/lorafuse/data"
	"github.com/lorafuse/lorafuse/graph"
	"github.com/lorafuse/lorafuse/model"
	"github.com/lorafuse/lorafuse/nn"
	"github.com/lorafuse/lorafuse/sentence"
)

// Task is what is learned: the loss of a batch, and what batches have for it.
type Task interface {
	// Bounds are the largest sizes of the axes of batches of so many tokens.
	Bounds(tokens int) map[string]int
	// Mark adds to a batch what the loss reads beside its texts.
	Mark(b *data.Batch)
	// Loss emits the loss of a batch, summed over what [data.Batch.LossTokens] counts.
	Loss(b *nn.Builder, out model.Outputs) graph.Tensor
	// Whole says why a micro-batch cannot be cut without changing what is learned,
	// or nothing.
	Whole() string
	// Smaller says what would take less memory than the smallest plan, or nothing where
	// that is rows of fewer tokens.
	Smaller() string
}

// NextToken is the task of language models: each token from those before it.
type NextToken struct{}

// Bounds implements Task.
func (NextToken) Bounds(tokens int) map[string]int { return map[string]int{nn.Tokens: tokens} }

// Mark implements Task: a batch of language has its labels.
func (NextToken) Mark(*data.Batch) {}

// Loss implements Task.
func (NextToken) Loss(b *nn.Builder, out model.Outputs) graph.Tensor {
	return out.Loss(b, model.NextToken)
}

// Whole implements Task.
func (NextToken) Whole() string { return "" }

// Smaller implements Task.
func (NextToken) Smaller() string { return "" }

// Embedding is the task of models that make vectors of texts: those that belong
// together near each other, and away from the others of a micro-batch.
type Embedding struct {
	sentence.Contrast
	Transform *sentence.Transform // makes vectors
	Longest   int                 // tokens of a text, at most
}

// Loss implements Task.
func (t Embedding) Loss(b *nn.Builder, out model.Outputs) graph.Tensor {
	states, err := out.Last()
	if err != nil {
		return b.G.Fail(err)
	}
	loss := t.Contrast.Loss(b, t.Transform.Vectors(b, states, t.Longest))
	b.TrainFor(loss) // vectors do not depend on BERT's pooler
	return loss
}

// Whole implements Task.
func (Embedding) Whole() string {
	return "the texts of a micro-batch are held against each other (task: embedding)"
}

// Smaller implements Task.
func (Embedding) Smaller() string { return "" }
