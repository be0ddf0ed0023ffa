package train

import (
	"github.com/lorafuse/lorafuse/graph"
	"github.com/lorafuse/lorafuse/internal/data"
	"github.com/lorafuse/lorafuse/internal/model"
	"github.com/lorafuse/lorafuse/internal/nn"
	"github.com/lorafuse/lorafuse/internal/sentence"
)

// Task is a training objective: the loss of a batch, and the additional inputs that the
// loss needs.
type Task interface {
	// Bounds returns the maximum sizes of the axes of batches with the given number of
	// tokens.
	Bounds(tokens int) map[string]int
	// Mark adds the inputs of the loss to a batch.
	Mark(b *data.Batch)
	// Loss emits the loss of a batch, summed over what [data.Batch.LossTokens] counts.
	Loss(b *nn.Builder, out model.Outputs) graph.Tensor
	// Whole returns the reason why cutting a micro-batch would change the result, or
	// nothing.
	Whole() string
	// Smaller returns advice for reducing the memory of the smallest plan, or nothing
	// if the advice is to use shorter rows.
	Smaller() string
}

// NextToken is the task of language models: to predict each token from those before it.
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

// Embedding is the task of text embedding models: embeddings of texts that belong
// together should be close, and distant from the others in a micro-batch.
type Embedding struct {
	sentence.Contrast
	Transform *sentence.Transform // computes embeddings
	Longest   int                 // tokens of a text, at most
}

// Loss implements Task.
func (t Embedding) Loss(b *nn.Builder, out model.Outputs) graph.Tensor {
	states, err := out.Last()
	if err != nil {
		return b.G.Fail(err)
	}
	loss := t.Contrast.Loss(b, t.Transform.Vectors(b, states, t.Longest))
	b.TrainFor(loss) // embeddings do not depend on BERT's pooler
	return loss
}

// Whole implements Task.
func (Embedding) Whole() string {
	return "the texts of a micro-batch are held against each other (task: embedding)"
}

// Smaller implements Task.
func (Embedding) Smaller() string { return "" }
