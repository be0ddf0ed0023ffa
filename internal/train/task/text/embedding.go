package text

import (
	"context"
	"fmt"

	"github.com/lorafuse/lorafuse/graph"
	"github.com/lorafuse/lorafuse/internal/data"
	"github.com/lorafuse/lorafuse/internal/model"
	"github.com/lorafuse/lorafuse/internal/nn"
	"github.com/lorafuse/lorafuse/internal/sentence"
	"github.com/lorafuse/lorafuse/internal/train"
	"github.com/lorafuse/lorafuse/internal/train/trainer"
	"github.com/lorafuse/lorafuse/tokenizer"
	"github.com/lorafuse/lorafuse/train/config"
)

func init() {
	train.Register(config.TaskEmbedding, train.Task{Open: embedding, Try: train.TryWith("embed", "--input texts.txt"), Card: train.Card{
		Pipeline: "feature-extraction", Library: "sentence-transformers", Python: `from sentence_transformers import SentenceTransformer

model = SentenceTransformer({base})
model.load_adapter({adapter})
vectors = model.encode(["..."])
`}})
}

// EmbeddingLoss returns the loss of text embedding models: embeddings of texts that belong
// together should be close, and distant from the others in a micro-batch. Texts have at most
// longest tokens.
func EmbeddingLoss(c sentence.Contrast, t *sentence.Transform, longest int) trainer.Loss {
	return trainer.Loss{
		Name: fmt.Sprintf("embedding %+v, %d tokens", c, longest),
		Emit: func(b *nn.Builder, out model.Outputs) (loss, sums graph.Tensor) {
			states, err := out.Last()
			if err != nil {
				return b.G.Fail(err), sums
			}
			loss = c.Loss(b, t.Vectors(b, states, longest))
			b.TrainFor(loss) // embeddings do not depend on BERT's pooler
			return loss, sums
		},
		Bounds: c.Bounds, Mark: c.Mark,
		Whole: "the texts of a micro-batch are held against each other (task: embedding)",
	}
}

// embedding opens a run on pairs of texts.
func embedding(ctx context.Context, s *train.Setup) (*train.Material, error) {
	t, err := open(ctx, s)
	if err != nil {
		return nil, err
	}
	if err := s.OpenModel(t.dir, model.Body); err != nil {
		return nil, err
	}
	var transform *sentence.Transform
	o, longest := t.cfg.DataOptions(), 0
	err = t.load(ctx, s.Model().Config, o, func(o *data.Options, tok *tokenizer.Tokenizer) error {
		if transform, err = sentence.Read(t.dir); err != nil {
			return fmt.Errorf("train: %w", err)
		}
		if transform.LowerCase {
			tok = tok.Lowercased()
		}
		o.Texts, o.MaxLength = tok, transform.Longest(min(o.MaxLength, s.Model().Config.MaxLength()))
		if specials := tok.NumSpecialTokens(); o.MaxLength <= specials {
			return fmt.Errorf("train: data.max_length: texts have at most %d tokens, expected more than the %d special ones of each", o.MaxLength, specials)
		}
		longest = o.MaxLength
		return nil
	})
	if err != nil {
		return nil, err
	}
	each := t.set.Texts()
	if t.evalSet != nil && t.evalSet.Texts() != each {
		return nil, fmt.Errorf("train: data.eval: %w: found rows of %d texts, expected %d as in data.train", train.ErrTask, t.evalSet.Texts(), each)
	}
	if each == 2 && t.cfg.BatchSize == 1 {
		return nil, fmt.Errorf("train: batch_size: %w: found 1, expected 2 or more for task: embedding: the negatives of a row are the other rows of its micro-batch", train.ErrTask)
	}
	digest := transform.Digest()
	t.setting("embedding.scale", t.cfg.Embedding.Scale)
	t.setting("sentence-transformers files", fmt.Sprintf("sha256 %x", digest[:8]))
	return t.material(func(t *texts, m *train.Material) error {
		m.Loss = EmbeddingLoss(sentence.Contrast{Rows: t.documents / each, Texts: each, Scale: t.cfg.Embedding.Scale}, transform, longest)
		return nil
	})
}
