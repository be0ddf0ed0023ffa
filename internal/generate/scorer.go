package generate

import (
	"context"
	"fmt"
	"slices"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/graph"
	"github.com/lorafuse/lorafuse/internal/data"
	"github.com/lorafuse/lorafuse/internal/engine"
	"github.com/lorafuse/lorafuse/internal/host"
	"github.com/lorafuse/lorafuse/internal/model"
	"github.com/lorafuse/lorafuse/internal/nn"
	"github.com/lorafuse/lorafuse/lora"
)

// Scorer reads whole texts, without a cache. Each text is read as if it were
// alone. It is not safe for concurrent use.
type Scorer struct {
	host      *host.Host
	slot      *engine.Slot
	maxTokens int
	alone     bool // rows run one at a time, since derived tables depend on their length
}

const lossResult = "loss"

// NewScorer prepares a scorer that reads at most maxTokens at a time; state is
// an adapter, or nil. m must stay open until the scorer is closed. Nothing is
// compiled before it is asked for.
func NewScorer(dev backend.Device, m *model.Model, state *lora.State, maxTokens int) (*Scorer, error) {
	if maxTokens < 1 {
		return nil, fmt.Errorf("generate: %w: a scorer of %d tokens, expected 1 or more", ErrOption, maxTokens)
	}
	h := host.Open(dev, m)
	slot, err := h.NewSlot(state)
	if err != nil {
		return nil, err
	}
	return &Scorer{host: h, slot: slot, maxTokens: maxTokens}, nil
}

// Close frees the device's memory.
func (s *Scorer) Close() {
	s.host.Close()
	s.slot.Free()
}

// Logits returns the logits of all tokens of the rows, concatenated: [tokens, vocab]. Errors:
// ErrTooLong for a row of more than maxTokens, ErrToken, model.ErrTask for a model without a
// language head, and errors of the device.
func (s *Scorer) Logits(ctx context.Context, rows [][]int32) ([]float32, error) {
	if err := s.host.Model().CheckLogits(); err != nil {
		return nil, fmt.Errorf("generate: %w", err)
	}
	spec := s.spec(logitsResult, func(b *nn.Builder, out model.Outputs, p *graph.Program) {
		p.Result(logitsResult, out.Logits(b, graph.Tensor{}))
	})
	var out []float32
	err := s.rows(ctx, spec, rows, func(r host.Results) (err error) {
		out, err = r.Append(ctx, out, logitsResult)
		return err
	})
	return out, err
}

// Hidden returns the hidden states of all tokens of the rows, [tokens, hidden size] each, in
// the order of transformers: the embeddings, the output of each layer except the last, and the
// output of the final norm.
func (s *Scorer) Hidden(ctx context.Context, rows [][]int32) ([][]float32, error) {
	name := func(i int) string { return fmt.Sprintf("hidden.%d", i) }
	spec := s.spec("hidden", func(_ *nn.Builder, out model.Outputs, p *graph.Program) {
		for i, h := range out.Hidden {
			p.Result(name(i), h)
		}
	})
	out := make([][]float32, s.host.Model().Config.Layers+1)
	return out, s.rows(ctx, spec, rows, func(r host.Results) (err error) {
		for i := 0; i < len(out) && err == nil; i++ {
			out[i], err = r.Append(ctx, out[i], name(i))
		}
		return err
	})
}

// Loss returns the cross-entropy in nats, summed over the labels of the batch that are not
// data.Ignore; divide by b.LossTokens for the mean. Each label is at the position that
// predicts it, as package data lays them out. Errors: ErrTooLong, ErrToken, model.ErrTask for
// a model that does not generate text, and errors of the device.
func (s *Scorer) Loss(ctx context.Context, b *data.Batch) (float64, error) {
	if err := s.host.Model().CheckTask(model.NextToken); err != nil {
		return 0, fmt.Errorf("generate: %w", err)
	}
	results, err := s.run(ctx, s.spec(lossResult, func(b *nn.Builder, out model.Outputs, p *graph.Program) {
		p.Result(lossResult, out.Loss(b, model.NextToken))
	}), b)
	if err != nil {
		return 0, err
	}
	sum, err := results.Get(ctx, lossResult)
	if err != nil {
		return 0, err
	}
	return float64(sum[0]), nil
}

// spec returns a program that computes results from the model's outputs.
func (s *Scorer) spec(name string, results func(*nn.Builder, model.Outputs, *graph.Program)) engine.Spec {
	return engine.Spec{Name: name, Bounds: map[string]int{nn.Tokens: s.maxTokens}, Build: func(b *nn.Builder, p *graph.Program) {
		results(b, s.host.Model().Build(b), p)
		s.alone = slices.ContainsFunc(b.Tables(), nn.Derived.Changes)
	}}
}

// rows runs a program over as many rows at a time as fit, and hands on the results of each run.
func (s *Scorer) rows(ctx context.Context, spec engine.Spec, rows [][]int32, each func(host.Results) error) error {
	if _, err := s.host.Program(ctx, s.slot, spec); err != nil { // building the program sets s.alone
		return err
	}
	var b data.Batch
	flush := func() error {
		if len(b.Tokens()) == 0 {
			return nil
		}
		results, err := s.run(ctx, spec, &b)
		if err != nil {
			return err
		}
		b.Reset()
		return each(results)
	}
	for i, ids := range rows {
		if len(ids) > s.maxTokens {
			return fmt.Errorf("generate: %w: row %d has %d, the scorer takes %d", ErrTooLong, i, len(ids), s.maxTokens)
		}
		if len(b.Tokens())+len(ids) > s.maxTokens || s.alone {
			if err := flush(); err != nil {
				return err
			}
		}
		b.Add(ids, nil)
	}
	return flush()
}

func (s *Scorer) run(ctx context.Context, spec engine.Spec, b *data.Batch) (host.Results, error) {
	if err := s.check(b.Tokens()); err != nil {
		return host.Results{}, err
	}
	results, err := s.host.Compute(ctx, s.slot, spec, b, b.Longest())
	if err != nil {
		return results, fmt.Errorf("generate: %w", err)
	}
	return results, nil
}

func (s *Scorer) check(ids []int32) error {
	switch n := len(ids); {
	case n == 0:
		return fmt.Errorf("generate: %w: the batch has none", ErrToken)
	case n > s.maxTokens:
		return fmt.Errorf("generate: %w: the batch has %d, the scorer takes %d", ErrTooLong, n, s.maxTokens)
	}
	return checkTokens(s.host.Model().Config.VocabSize, ids)
}
