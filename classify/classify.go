// Package classify gives the numbers by which a classifier tells the classes of
// documents apart, and its loss on those that have labels: BERT and its kin, and
// decoders with a head, and an adapter where one is given.
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

// ErrOption is wrapped where Options make no classifier.
var ErrOption = errors.New("wrong option")

// Options are the sizes of batches.
type Options struct {
	MaxTokens    int // of a batch, at most
	MaxDocuments int // of a batch, at most
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

// New prepares a classifier; m is a model.Classifier and must stay open until the
// classifier is closed, state is an adapter, or nil. Errors: ErrOption, model.ErrTask
// where the model is no classifier, and those of the device.
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

// Score gives the scores of a batch of labelled rows, [documents, classes], and its
// loss, summed over its documents.
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

// Close frees the device's memory.
func (c *Classifier) Close() {
	c.runtime.Close()
	c.slot.Free()
}
