package train

import (
	"github.com/lorafuse/lorafuse/graph"
	"github.com/lorafuse/lorafuse/internal/model"
	"github.com/lorafuse/lorafuse/internal/nn"
	"github.com/lorafuse/lorafuse/internal/sentence"
)

// Embedding is the task of text embedding models: embeddings of texts that belong
// together should be close, and distant from the others in a micro-batch.
type Embedding struct {
	sentence.Contrast
	Transform *sentence.Transform // computes embeddings
	Longest   int                 // tokens of a text, at most
}

// Loss returns the loss of the task.
func (t Embedding) Loss() Loss {
	return Loss{
		Emit: t.emit, Bounds: t.Contrast.Bounds, Mark: t.Contrast.Mark,
		Whole: "the texts of a micro-batch are held against each other (task: embedding)",
	}
}

// emit emits the loss of a batch.
func (t Embedding) emit(b *nn.Builder, out model.Outputs) (loss, sums graph.Tensor) {
	states, err := out.Last()
	if err != nil {
		return b.G.Fail(err), sums
	}
	loss = t.Contrast.Loss(b, t.Transform.Vectors(b, states, t.Longest))
	b.TrainFor(loss) // embeddings do not depend on BERT's pooler
	return loss, sums
}
