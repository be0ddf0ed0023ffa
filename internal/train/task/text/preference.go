package text

import (
	"context"
	"fmt"

	"github.com/lorafuse/lorafuse/graph"
	"github.com/lorafuse/lorafuse/internal/data"
	"github.com/lorafuse/lorafuse/internal/ir"
	"github.com/lorafuse/lorafuse/internal/model"
	"github.com/lorafuse/lorafuse/internal/nn"
	"github.com/lorafuse/lorafuse/internal/train"
	"github.com/lorafuse/lorafuse/internal/train/events"
	"github.com/lorafuse/lorafuse/internal/train/trainer"
	"github.com/lorafuse/lorafuse/tensor"
	"github.com/lorafuse/lorafuse/train/config"
)

func init() {
	train.Register(config.TaskPreference, train.Task{Open: preference, Try: train.TryWith("generate", `--prompt "..."`), Card: generates})
}

// Names of the inputs of the loss, and of its axis of rows. An answer is a text.
const (
	pairAxis       = "pairs"
	textOfInput    = "text of token"            // i32 [tokens]
	chosenInput    = "chosen answer"            // i32 [pairs]: 0, which of the two is preferred
	referenceInput = "reference log-likelihood" // f32 [2·pairs]
)

// PreferenceLoss returns the loss of direct preference optimization (DPO, arXiv 2305.18290): a
// language model learns which of two answers to a prompt is preferred. The loss of a row is
// −log σ of the difference between the rewards of the chosen and the rejected answer. The
// reward of an answer is beta · (log π − log reference): how much more likely the answer is
// with the adapter than without it. The sums are the rewards of the chosen and of the rejected
// answers, and the number of rows whose chosen answer has the larger reward. A batch has at
// most the given number of rows.
func PreferenceLoss(beta float64, rows int) trainer.Loss {
	return trainer.Loss{
		Name: fmt.Sprintf("preference, beta %v", beta),
		Emit: func(b *nn.Builder, out model.Outputs) (loss, sums graph.Tensor) { return emit(b, out, beta) },
		Sums: 3, Metrics: rewardMetrics,
		Bounds:    func(tokens int) map[string]int { return map[string]int{nn.Tokens: tokens, pairAxis: rows} },
		Mark:      markAnswers,
		Right:     func(_ *data.Batch, sums, _ []float32) int { return int(sums[2]) },
		Reference: likelihoods,
	}
}

// rewardMetrics returns the metrics of a step, with the names of TRL.
func rewardMetrics(means []float64) []events.Scalar {
	chosen, rejected := means[0], means[1]
	return []events.Scalar{
		{Name: "rewards/chosen", Value: chosen}, {Name: "rewards/rejected", Value: rejected},
		{Name: "rewards/margins", Value: chosen - rejected}, {Name: events.RewardAccuracy, Value: means[2]},
	}
}

// markAnswers adds the inputs of the loss to a batch.
func markAnswers(b *data.Batch) {
	of := make([]int32, len(b.Tokens()))
	for text := range b.Rows() {
		for i := b.Starts[text]; i < b.Starts[text+1]; i++ {
			of[i] = int32(text)
		}
	}
	b.SetInts(textOfInput, of)
	b.SetInts(chosenInput, make([]int32, b.Rows()/2))
}

// emit emits the loss of a batch and its sums.
func emit(b *nn.Builder, out model.Outputs, beta float64) (loss, sums graph.Tensor) {
	likely := likelihoods(b, out)
	if !likely.Valid() {
		return likely, likely
	}
	pairs, one := b.Axis(pairAxis), ir.Static(1)
	rewards := likely.Sub(b.Input(referenceInput, tensor.F32, answers(pairs))).Scale(beta).Reshape(pairs, ir.Static(2))
	loss = out.Balanced(rewards.CrossEntropy(b.Input(chosenInput, tensor.I32, pairs)))
	chosen, rejected := rewards.Slice(1, 0, 1), rewards.Slice(1, 1, 2)
	right := chosen.Compare(ir.Greater, rejected).Where(b.G.Const(1, pairs, one), b.G.Const(0, pairs, one))
	return loss, graph.Concat(0, chosen.Sum(0), rejected.Sum(0), right.Sum(0))
}

// likelihoods emits the log-probabilities of the answers, f32 [2·pairs].
func likelihoods(b *nn.Builder, out model.Outputs) graph.Tensor {
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

// preference opens a run on rows with two answers.
func preference(ctx context.Context, s *train.Setup) (*train.Material, error) {
	t, err := openLanguage(ctx, s)
	if err != nil {
		return nil, err
	}
	beta := t.cfg.Preference.Beta
	t.setting("preference.beta", beta)
	return t.material(func(t *texts, m *train.Material) error {
		m.Loss = PreferenceLoss(beta, t.documents/t.set.Texts())
		m.Prepare = t.refer
		if t.cfg.InitAdapter != "" {
			m.Notes = append(m.Notes, "note     the reference of preferences is the model without an adapter, not with init_adapter")
		}
		return nil
	})
}

// refer computes the reference of each row that the remaining steps use. It does so
// once per row, in the micro-batch in which the row first occurs, so that a resumed run
// gets the same bits. The ranks of a run take turns.
func (t *texts) refer(ctx context.Context, e *train.Engine, steps int) error {
	if err := t.referSet(ctx, e, t.set, t.loader, steps, "reference of training data"); err != nil || t.evalLoader == nil {
		return err
	}
	return t.referSet(ctx, e, t.evalSet, t.evalLoader, t.evalLoader.StepsPerEpoch(), "reference of evaluation data")
}

func (t *texts) referSet(ctx context.Context, e *train.Engine, set *data.Dataset, rows *data.Loader, steps int, what string) error {
	const bytes = 4 // of a token
	texts := set.Texts()
	all, done := make([]float32, set.Len()*texts), int64(0)
	var b data.Batch
	var round [][]int // groups of rows, one for each rank
	compute := func() error {
		longest := 0
		for _, group := range round {
			longest = max(longest, len(group)*texts)
		}
		found := make([]float32, longest)
		var err error
		if rank := t.Rank(); rank < len(round) {
			b.Reset()
			for _, row := range round[rank] {
				b.AddRow(set, row)
			}
			err = e.Reference(ctx, &b, found)
		}
		of, err := t.Exchange(ctx, found, err)
		if err != nil {
			return err
		}
		for rank, group := range round {
			for i, row := range group {
				copy(all[row*texts:], of[rank][i*texts:(i+1)*texts])
			}
		}
		done += int64(bytes * len(b.Tokens()) * len(round))
		total := int64(bytes * set.Stats().Tokens)
		t.Progress(what, min(done, total), total)
		round = round[:0]
		return nil
	}
	for group := range rows.First(steps) {
		if round = append(round, group); len(round) == t.Ranks() {
			if err := compute(); err != nil {
				return err
			}
		}
	}
	if len(round) > 0 {
		if err := compute(); err != nil {
			return err
		}
	}
	return set.SetNumbers(referenceInput, all)
}
