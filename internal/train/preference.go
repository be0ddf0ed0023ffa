package train

import (
	"context"
	"fmt"

	"github.com/lorafuse/lorafuse/graph"
	"github.com/lorafuse/lorafuse/internal/data"
	"github.com/lorafuse/lorafuse/internal/engine"
	"github.com/lorafuse/lorafuse/internal/ir"
	"github.com/lorafuse/lorafuse/internal/model"
	"github.com/lorafuse/lorafuse/internal/nn"
	"github.com/lorafuse/lorafuse/tensor"
)

// Preference is the task of direct preference optimization (Rafailov et al. 2023, arXiv
// 2305.18290): a language model learns which of two answers to a prompt is preferred.
// The loss of a row is −log σ of the difference between the rewards of the chosen and
// the rejected answer. The reward of an answer is Beta · (log π − log reference): how
// much more likely the answer is with the adapter than without it.
type Preference struct {
	Beta float64
	Rows int // of a batch, at most
}

// Names of the inputs of a Preference, and of its axis of rows. An answer is a text.
const (
	pairAxis       = "pairs"
	textOfInput    = "text of token"            // i32 [tokens]
	chosenInput    = "chosen answer"            // i32 [pairs]: 0, which of the two is preferred
	referenceInput = "reference log-likelihood" // f32 [2·pairs]
)

// Bounds implements Task.
func (p Preference) Bounds(tokens int) map[string]int {
	return map[string]int{nn.Tokens: tokens, pairAxis: p.Rows}
}

// Mark implements Task.
func (Preference) Mark(b *data.Batch) {
	of := make([]int32, len(b.Tokens()))
	for text := range b.Rows() {
		for i := b.Starts[text]; i < b.Starts[text+1]; i++ {
			of[i] = int32(text)
		}
	}
	b.SetInts(textOfInput, of)
	b.SetInts(chosenInput, make([]int32, b.Rows()/2))
}

// Loss implements Task.
func (p Preference) Loss(b *nn.Builder, out model.Outputs) graph.Tensor {
	loss, _ := p.emit(b, out)
	return loss
}

// Whole implements Task: both answers of a row are in one micro-batch however it is cut.
func (Preference) Whole() string { return "" }

// Smaller implements Task.
func (Preference) Smaller() string { return "" }

// emit returns the loss of a batch, and the sums of the fields of Rewards, f32 [3].
func (p Preference) emit(b *nn.Builder, out model.Outputs) (loss, sums graph.Tensor) {
	likely := p.likelihoods(b, out)
	if !likely.Valid() {
		return likely, likely
	}
	pairs, one := b.Axis(pairAxis), ir.Static(1)
	rewards := likely.Sub(b.Input(referenceInput, tensor.F32, answers(pairs))).Scale(p.Beta).Reshape(pairs, ir.Static(2))
	loss = out.Balanced(rewards.CrossEntropy(b.Input(chosenInput, tensor.I32, pairs)))
	chosen, rejected := rewards.Slice(1, 0, 1), rewards.Slice(1, 1, 2)
	right := chosen.Compare(ir.Greater, rejected).Where(b.G.Const(1, pairs, one), b.G.Const(0, pairs, one))
	return loss, graph.Concat(0, chosen.Sum(0), rejected.Sum(0), right.Sum(0))
}

// likelihoods are the logarithms of the probabilities of answers, f32 [2·pairs].
func (Preference) likelihoods(b *nn.Builder, out model.Outputs) graph.Tensor {
	if out.Head == nil {
		return b.G.Fail(fmt.Errorf("%w: a language head, which preferences are learned with", model.ErrTask))
	}
	labels := b.Input(nn.Labels, tensor.I32, b.Axis(nn.Tokens))
	losses := out.Head.RowLosses(labels)
	tokens, texts := b.Axis(nn.Tokens), answers(b.Axis(pairAxis))
	of := b.Input(textOfInput, tensor.I32, tokens)
	sums := b.G.Of(b.G.IR().ScatterAddRows(losses.Reshape(tokens, ir.Static(1)).Value(), of.Value(), texts))
	return sums.Reshape(texts).Scale(-1)
}

// answers returns the axis of the answers of pairs.
func answers(pairs ir.Dim) ir.Dim { return ir.Dim{N: 2 * pairs.N, Var: pairs.Var} }

// Rewards holds the rewards of the answers in a step, averaged over its rows.
type Rewards struct {
	Chosen, Rejected float64
	Accuracy         float64 // share of the rows whose chosen answer has the larger reward
}

// Margin returns the difference between the chosen and the rejected reward.
func (r Rewards) Margin() float64 { return r.Chosen - r.Rejected }

// rewardSums holds the sums from which Rewards are computed.
type rewardSums [3]float32

func (s rewardSums) mean(rows int) Rewards {
	n := float64(max(1, rows))
	return Rewards{float64(s[0]) / n, float64(s[1]) / n, float64(s[2]) / n}
}

// preference returns the task if it is a Preference.
func (o EngineOptions) preference() (Preference, bool) {
	p, ok := o.task().(Preference)
	return p, ok
}

// planReference plans the program of the reference: the model without an adapter.
func (p *Planner) planReference(o EngineOptions) (*engine.Draft, error) {
	task, ok := o.preference()
	if !ok {
		return nil, nil
	}
	if p.bare == nil {
		var err error
		if p.bare, err = p.host.NewSlot(nil); err != nil {
			return nil, err
		}
	}
	return p.host.Plan(p.bare, engine.Spec{Bounds: task.Bounds(max(o.MaxTokens, o.MaxEvalTokens)), Build: func(b *nn.Builder, program *graph.Program) {
		program.Result(engine.SlotPrefix+referenceName, task.likelihoods(b, p.model.Build(b)))
	}})
}

// Reference computes the log probability of each answer in a batch of preferences, by
// the model without the adapter, and stores them in dst.
func (e *Engine) Reference(ctx context.Context, b *data.Batch, dst []float32) error {
	e.host.Lock()
	defer e.host.Unlock()
	e.opts.task().Mark(b)
	e.given.batch = b
	if err := e.reference.Run(ctx, e.bare, &e.given, b.Longest()); err != nil {
		return fmt.Errorf("train: %w", err)
	}
	return e.host.ReadSlot(ctx, e.bare, referenceName, dst[:b.Rows()])
}

// refer computes the reference of each row that the remaining steps use. It does so
// once per row, in the micro-batch in which the row first occurs, so that a resumed run
// gets the same bits.
func (t *texts) refer(ctx context.Context, l *loop) error {
	if _, ok := l.engine.opts.preference(); !ok || l.ended() {
		return nil
	}
	if err := l.referSet(ctx, t.set, t.loader, l.steps, "reference of training data"); err != nil || t.evalLoader == nil {
		return err
	}
	return l.referSet(ctx, t.evalSet, t.evalLoader, t.evalLoader.StepsPerEpoch(), "reference of evaluation data")
}

func (l *loop) referSet(ctx context.Context, set *data.Dataset, rows *data.Loader, steps int, what string) error {
	const bytes = 4 // of a token
	texts := set.Texts()
	all, done := make([]float32, set.Len()*texts), int64(0)
	var found []float32
	var b data.Batch
	for group := range rows.First(steps) {
		b.Reset()
		for _, row := range group {
			b.AddRow(set, row)
		}
		found = append(found[:0], make([]float32, b.Rows())...)
		if err := l.engine.Reference(ctx, &b, found); err != nil {
			return err
		}
		for i, row := range group {
			copy(all[row*texts:], found[i*texts:(i+1)*texts])
		}
		done += int64(bytes * len(b.Tokens()))
		if l.observer.Load != nil {
			l.observer.Load(what, done, int64(bytes*set.Stats().Tokens))
		}
	}
	return set.SetNumbers(referenceInput, all)
}
