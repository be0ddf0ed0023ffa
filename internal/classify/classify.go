// Package classify computes class scores of documents, and the loss if they have labels. It supports BERT-like encoders
// and decoders with a classification head, optionally with an adapter. [New] returns a [Classifier].
package classify

import (
	"context"
	"errors"
	"fmt"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/graph"
	"github.com/lorafuse/lorafuse/internal/data"
	"github.com/lorafuse/lorafuse/internal/engine"
	"github.com/lorafuse/lorafuse/internal/host"
	"github.com/lorafuse/lorafuse/internal/model"
	"github.com/lorafuse/lorafuse/internal/nn"
	"github.com/lorafuse/lorafuse/lora"
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
	host *host.Host
	slot *engine.Slot
	spec engine.Spec
}

// DataOptions returns how texts are read for a classifier, with at most maxLength tokens each.
func DataOptions(c *model.Config, t data.TextTokenizer, maxLength int) data.Options {
	o := data.Options{
		Rows: data.LabelledRows, Problem: c.Classes.Means(), Texts: t, Types: c.TokenTypes(), VocabSize: c.VocabSize,
		MaxLength: min(maxLength, c.MaxLength()), OnTooLong: data.Truncate,
	}
	if o.Problem != data.Regression {
		o.Classes = c.Classes.Names
	}
	return o
}

// For returns the limits of the batches of a loader.
func For(rows *data.Loader) Options {
	return Options{MaxTokens: rows.MaxTokens(), MaxDocuments: rows.MaxDocuments()}
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
	c := &Classifier{host: host.Open(dev, m)}
	if c.slot, err = c.host.NewSlot(state); err != nil {
		return nil, err
	}
	bounds := map[string]int{nn.Tokens: o.MaxTokens, nn.Documents: o.MaxDocuments}
	c.spec = engine.Spec{Name: "classify", Bounds: bounds, Build: func(b *nn.Builder, p *graph.Program) {
		out := m.Build(b)
		p.Result(scoresResult, out.Score(b))
		p.Result(lossResult, out.Loss(b, model.Classification))
	}}
	if _, err = c.host.Program(ctx, c.slot, c.spec); err != nil {
		c.Close()
		return nil, fmt.Errorf("classify: %w", err)
	}
	return c, nil
}

// Score returns the scores of a batch of labelled rows, [documents, classes], and the loss, summed over the documents.
func (c *Classifier) Score(ctx context.Context, b *data.Batch) (scores []float32, loss float64, err error) {
	c.host.Model().Config.MarkRead(b)
	results, err := c.host.Compute(ctx, c.slot, c.spec, b, b.Longest())
	if err != nil {
		return nil, 0, fmt.Errorf("classify: %w", err)
	}
	if scores, err = results.Get(ctx, scoresResult); err != nil {
		return nil, 0, err
	}
	sum, err := results.Get(ctx, lossResult)
	if err != nil {
		return nil, 0, err
	}
	return scores, float64(sum[0]), nil
}

// Close frees the device memory.
func (c *Classifier) Close() {
	c.host.Close()
	c.slot.Free()
}
