package generate

import (
	"context"
	"fmt"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/data"
	"github.com/lorafuse/lorafuse/engine"
	"github.com/lorafuse/lorafuse/graph"
	"github.com/lorafuse/lorafuse/lora"
	"github.com/lorafuse/lorafuse/model"
	"github.com/lorafuse/lorafuse/nn"
)

// Scorer reads whole texts, without a cache. Each text is read as if it were
// alone. It is not safe for concurrent use.
type Scorer struct {
	runtime   *engine.Runtime
	slot      *engine.Slot
	maxTokens int
	runs      map[string]scored // compiled when first asked for
}

// scored is a program of a scorer.
type scored struct {
	*engine.Program
	alone bool // a row runs by itself, since what it reads depends on its length
}

const lossResult = "loss"

// NewScorer prepares a scorer that reads at most maxTokens at a time; state is
// an adapter, or nil. m must stay open until the scorer is closed. Nothing is
// compiled before it is asked for.
func NewScorer(dev backend.Device, m *model.Model, state *lora.State, maxTokens int) (*Scorer, error) {
	if maxTokens < 1 {
		return nil, fmt.Errorf("generate: %w: a scorer of %d tokens, expected 1 or more", ErrOption, maxTokens)
	}
	r := engine.New(dev, m)
	slot, err := r.NewSlot(state)
	if err != nil {
		return nil, err
	}
	return &Scorer{r, slot, maxTokens, map[string]scored{}}, nil
}

// Close frees the device's memory.
func (s *Scorer) Close() {
	s.runtime.Close()
	s.slot.Free()
}

// Logits gives the logits of all tokens of the rows, one row behind the other:
// [tokens, vocab]. Errors: ErrTooLong for a row of more than maxTokens,
// ErrToken, model.ErrTask for a model without a language head, and those of the device.
func (s *Scorer) Logits(ctx context.Context, rows [][]int32) ([]float32, error) {
	if err := s.runtime.Model().CheckLogits(); err != nil {
		return nil, fmt.Errorf("generate: %w", err)
	}
	e, err := s.compiled(ctx, logitsResult, func(b *nn.Builder, out model.Outputs, p *graph.Program) {
		p.Result(logitsResult, out.Logits(b, graph.Tensor{}))
	})
	if err != nil {
		return nil, err
	}
	var out []float32
	return out, s.rows(ctx, e, rows, func(tokens int) error {
		out, err = s.result(ctx, out, logitsResult, tokens*s.runtime.Model().Config.VocabSize)
		return err
	})
}

// Hidden gives the hidden states of all tokens of the rows, [tokens, hidden
// size] for each: of the embeddings, behind each layer but the last, and
// behind the final norm, as transformers lists them.
func (s *Scorer) Hidden(ctx context.Context, rows [][]int32) ([][]float32, error) {
	name := func(i int) string { return fmt.Sprintf("hidden.%d", i) }
	e, err := s.compiled(ctx, "hidden", func(_ *nn.Builder, out model.Outputs, p *graph.Program) {
		for i, h := range out.Hidden {
			p.Result(name(i), h)
		}
	})
	if err != nil {
		return nil, err
	}
	c := s.runtime.Model().Config
	out := make([][]float32, c.Layers+1)
	return out, s.rows(ctx, e, rows, func(tokens int) error {
		for i := range out {
			if out[i], err = s.result(ctx, out[i], name(i), tokens*c.HiddenSize); err != nil {
				return err
			}
		}
		return nil
	})
}

// Loss is the cross-entropy in nats, summed over the labels of the batch that
// are not data.Ignore: divide by b.LossTokens for the mean. Labels stand where
// they are predicted, as package data lays them. Errors: ErrTooLong, ErrToken,
// model.ErrTask for a model that continues no texts, and those of the device.
func (s *Scorer) Loss(ctx context.Context, b *data.Batch) (float64, error) {
	if err := s.runtime.Model().CheckTask(model.NextToken); err != nil {
		return 0, fmt.Errorf("generate: %w", err)
	}
	e, err := s.compiled(ctx, lossResult, func(b *nn.Builder, out model.Outputs, p *graph.Program) {
		p.Result(lossResult, out.Loss(b, model.NextToken))
	})
	if err != nil {
		return 0, err
	}
	if err := s.run(ctx, e, b); err != nil {
		return 0, err
	}
	sum, err := s.result(ctx, nil, lossResult, 1)
	if err != nil {
		return 0, err
	}
	return float64(sum[0]), nil
}

func (s *Scorer) compiled(ctx context.Context, name string, results func(*nn.Builder, model.Outputs, *graph.Program)) (scored, error) {
	if x, ok := s.runs[name]; ok {
		return x, nil
	}
	var x scored
	draft, err := s.runtime.Plan(s.slot, engine.Spec{Bounds: map[string]int{nn.Tokens: s.maxTokens}, Build: func(b *nn.Builder, p *graph.Program) {
		results(b, s.runtime.Model().Build(b), p)
	}})
	if err != nil {
		return x, err
	}
	x.alone = draft.ByLength()
	programs, err := s.runtime.Load(ctx, s.slot, nil, draft)
	if err != nil {
		return x, err
	}
	x.Program = programs[0]
	s.runs[name] = x
	return x, nil
}

// rows runs e over as many rows at a time as fit and calls done after each run.
func (s *Scorer) rows(ctx context.Context, e scored, rows [][]int32, done func(tokens int) error) error {
	var b data.Batch
	flush := func() error {
		n := len(b.Tokens())
		if n == 0 {
			return nil
		}
		if err := s.run(ctx, e, &b); err != nil {
			return err
		}
		b.Reset()
		return done(n)
	}
	for i, ids := range rows {
		if len(ids) > s.maxTokens {
			return fmt.Errorf("generate: %w: row %d has %d, the scorer takes %d", ErrTooLong, i, len(ids), s.maxTokens)
		}
		if len(b.Tokens())+len(ids) > s.maxTokens || e.alone {
			if err := flush(); err != nil {
				return err
			}
		}
		b.Add(ids, nil)
	}
	return flush()
}

func (s *Scorer) run(ctx context.Context, e scored, b *data.Batch) error {
	if err := s.check(b.Tokens()); err != nil {
		return err
	}
	if err := e.Run(ctx, s.slot, b, b.Longest()); err != nil {
		return fmt.Errorf("generate: %w", err)
	}
	return nil
}

func (s *Scorer) check(ids []int32) error {
	switch n := len(ids); {
	case n == 0:
		return fmt.Errorf("generate: %w: the batch has none", ErrToken)
	case n > s.maxTokens:
		return fmt.Errorf("generate: %w: the batch has %d, the scorer takes %d", ErrTooLong, n, s.maxTokens)
	}
	return checkTokens(s.runtime.Model().Config.VocabSize, ids)
}

// result appends the first n floats of a result to out.
func (s *Scorer) result(ctx context.Context, out []float32, name string, n int) ([]float32, error) {
	out = append(out, make([]float32, n)...)
	return out, s.runtime.Read(ctx, name, out[len(out)-n:])
}
