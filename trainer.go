package lorafuse

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/lorafuse/lorafuse/internal/host"
	"github.com/lorafuse/lorafuse/internal/train/session"
	"github.com/lorafuse/lorafuse/internal/train/trainer"
)

// TrainerOptions configure [Model.NewTrainer].
type TrainerOptions struct {
	Rank  int     // of the adapter, on all linear layers of the blocks. Zero means 8.
	Alpha float64 // the adapter is scaled by Alpha/Rank. Zero means 32.
	Seed  uint64  // of the initial adapter
	// Head adapts the output embedding, too.
	Head bool
	// Optimizer is adamw, or adamw_8bit with moments of 8 bits. Empty means adamw.
	Optimizer string
	// Memory is a budget in bytes for the adapter, its optimizer and the activations of a datum.
	// Layers are recomputed in the backward pass to stay within it, as few as possible. Zero
	// means that only the device limits it.
	Memory int64
}

// Trainer trains one adapter step by step. Its methods must not be called concurrently. Other
// goroutines may use the model at the same time; their calls have priority on the device. With
// [Options.BatchInvariant], trainers whose calls of ForwardBackward wait at the same time share
// passes over the model; the results are the same.
type Trainer struct {
	model   *Model
	session *session.Session
}

// Datum is a sequence of tokens, and for each of them the token that should follow.
type Datum struct {
	Tokens, Targets []int32
}

// Loss computes the loss of a batch and its gradient from the log-probabilities of the
// targets: one slice per datum, one element per target. grad has the same shape.
type Loss func(logprobs [][]float32) (loss float64, grad [][]float32)

// trainers holds the state shared by the trainers of a model.
type trainers struct {
	*host.Host
	group  *session.Group
	number atomic.Int64 // of states that were published
}

// NewTrainer returns a trainer of a new LoRA adapter of the model, for training loops with a custom
// loss or schedule. FineTune is simpler for data in files. The adapter has no effect before the
// first step. Close frees the memory of the trainer, but not adapters that it has published.
func (m *Model) NewTrainer(ctx context.Context, o TrainerOptions) (*Trainer, error) {
	e, err := m.open(ctx)
	if err != nil {
		return nil, err
	}
	m.mu.Lock()
	if m.trainers == nil {
		h := e.Beside(0)
		m.trainers = &trainers{Host: h, group: session.NewGroup(h)}
	}
	shared := m.trainers
	m.mu.Unlock()
	if o.Rank == 0 {
		o.Rank = 8
	}
	s, err := shared.group.New(ctx, session.Options{
		Rank: o.Rank, Alpha: o.Alpha, Seed: o.Seed, Attention: true, MLP: true, Unembed: o.Head, Optimizer: trainer.Optimizer(o.Optimizer), Memory: o.Memory,
	})
	if err != nil {
		return nil, fmt.Errorf("lorafuse: %w", err)
	}
	return &Trainer{m, s}, nil
}

// ForwardBackward adds the gradients of a loss over a batch to those since the last step, and
// returns the loss. A nil loss is cross-entropy: the sum of −log p over all targets.
func (t *Trainer) ForwardBackward(ctx context.Context, batch []Datum, loss Loss) (float64, error) {
	data := make([]session.Datum, len(batch))
	for i, d := range batch {
		data[i] = session.Datum{Tokens: d.Tokens, Targets: d.Targets}
	}
	if loss == nil {
		out, err := t.pass(ctx, data, false)
		if err != nil {
			return 0, err
		}
		return out.Metrics["loss:sum"], nil
	}
	out, err := t.pass(ctx, data, true)
	if err != nil {
		return 0, err
	}
	value, grad := loss(out.Logprobs)
	if len(grad) != len(data) {
		return 0, fmt.Errorf("lorafuse: %w: the loss returned gradients of %d data, expected %d", ErrOption, len(grad), len(data))
	}
	for i := range data {
		if len(grad[i]) != len(data[i].Targets) {
			return 0, fmt.Errorf("lorafuse: %w: the loss returned %d gradients of datum %d, expected %d", ErrOption, len(grad[i]), i, len(data[i].Targets))
		}
		data[i].Weights = make([]float32, len(grad[i])) // of −log p
		for j, g := range grad[i] {
			data[i].Weights[j] = -g
		}
	}
	_, err = t.pass(ctx, data, false)
	return value, err
}

// pass computes the cross-entropy of a batch.
func (t *Trainer) pass(ctx context.Context, data []session.Datum, forwardOnly bool) (*session.Output, error) {
	out, err := t.session.ForwardBackward(ctx, data, session.Loss{Name: "cross_entropy"}, forwardOnly)
	if err != nil {
		return nil, fmt.Errorf("lorafuse: %w", err)
	}
	return out, nil
}

// Step updates the adapter by AdamW with the gradients that ForwardBackward has added since the
// last step, and resets them.
func (t *Trainer) Step(ctx context.Context, learningRate float64) error {
	a := session.DefaultAdam()
	a.LearningRate = learningRate
	if _, err := t.session.OptimStep(ctx, a); err != nil {
		return fmt.Errorf("lorafuse: %w", err)
	}
	return nil
}

// Publish registers the current adapter under a name for later calls of the model. It writes
// nothing to disk.
func (t *Trainer) Publish(ctx context.Context, name string) error {
	shared := t.model.trainers
	state, err := t.session.Snapshot(ctx)
	if err == nil {
		_, err = t.model.engine.Adapters().Publish(ctx, name, fmt.Sprintf("trainer %p state %d", shared, shared.number.Add(1)), state)
	}
	if err != nil {
		return fmt.Errorf("lorafuse: publish %q: %w", name, err)
	}
	return nil
}

// Save writes the adapter to a folder that PEFT loads. It replaces an existing folder
// atomically.
func (t *Trainer) Save(ctx context.Context, dir string) error {
	return t.session.Save(ctx, dir, false)
}

// Close frees the trainer's memory on the device.
func (t *Trainer) Close() {
	t.session.Close()
}

// Encode returns the token ids of a text, including special tokens that the tokenizer adds, such as
// a beginning-of-sequence token.
func (m *Model) Encode(text string) ([]int32, error) { return m.texts.Encode(text, true) }

// Decode returns the text of token ids, without special tokens.
func (m *Model) Decode(tokens []int32) (string, error) { return m.texts.Decode(tokens, true) }
