// Package classify computes class scores of documents, and the loss if they have labels. It supports BERT-like encoders
// and decoders with a classification head, optionally with an adapter. [New] returns a [Classifier].
package classify

import (
	"context"
	"errors"
	"fmt"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/data"
	"github.com/lorafuse/lorafuse/engine"
	"github.com/lorafuse/lorafuse/graph"
	"github.com/lorafuse/lorafuse/lora"
	"github.com/lorafuse/lorafuse/model"
	"github.com/lorafuse/lorafuse/nn"
)

// ErrOption is wrapped by errors for invalid Options.
var ErrOption = errors.New("wrong option")

// Options limits the size of batches.
type Options struct {
	MaxTokens    int // maximum per batch
	MaxDocuments int // maximum per batch
}

// Classifier scores documents. It is not safe for concurrent use.
type Classifier struct {
	runtime *engine.Runtime
	slot    *engine.Slot
	run     *engine.Program
}

const (
	scoresResult = "scores"
	lossResult   = "loss"
)

// New returns a classifier. m must be a classification model and stay open until the classifier is closed; state is an
// adapter, or nil. It fails with ErrOption, with model.ErrTask if m has no classification head, and with errors of the
// device.
func New(ctx context.Context, dev backend.Device, m *model.Model, state *lora.State, o Options) (_ *Classifier, err error) {
	if o.MaxTokens < 1 || o.MaxDocuments < 1 {
		return nil, fmt.Errorf("classify: %w: at most %d tokens and %d documents, expected 1 or more", ErrOption, o.MaxTokens, o.MaxDocuments)
	}
	if err := m.CheckTask(model.Classification); err != nil {
		return nil, fmt.Errorf("classify: %w", err)
	}
	c := &Classifier{runtime: engine.New(dev, m)}
	if c.slot, err = c.runtime.NewSlot(state); err != nil {
		return nil, err
	}
	bounds := map[string]int{nn.Tokens: o.MaxTokens, nn.Documents: o.MaxDocuments}
	draft, err := c.runtime.Plan(c.slot, engine.Spec{Bounds: bounds, Build: func(b *nn.Builder, p *graph.Program) {
		out := m.Build(b)
		p.Result(scoresResult, out.Score(b))
		p.Result(lossResult, out.Loss(b, model.Classification))
	}})
	if err != nil {
		c.Close()
		return nil, fmt.Errorf("classify: %w", err)
	}
	programs, err := c.runtime.Load(ctx, c.slot, nil, draft)
	if err != nil {
		c.Close()
		return nil, err
	}
	c.run = programs[0]
	return c, nil
}

// Score returns the scores of a batch of labelled rows, [documents, classes], and the loss, summed over the documents.
func (c *Classifier) Score(ctx context.Context, b *data.Batch) (scores []float32, loss float64, err error) {
	config := c.runtime.Model().Config
	config.MarkRead(b)
	if err := c.run.Run(ctx, c.slot, b, b.Longest()); err != nil {
		return nil, 0, fmt.Errorf("classify: %w", err)
	}
	scores = make([]float32, b.Rows()*len(config.Classes.Names))
	if err := c.runtime.Read(ctx, scoresResult, scores); err != nil {
		return nil, 0, err
	}
	var sum [1]float32
	err = c.runtime.Read(ctx, lossResult, sum[:])
	return scores, float64(sum[0]), err
}

// Close frees the device memory.
func (c *Classifier) Close() {
	c.runtime.Close()
	c.slot.Free()
}
