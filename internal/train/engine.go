// Package train is the fine-tuning loop: the compiled training step, the run
// that a configuration describes, and its checkpoints.
package train

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/internal/data"
	"github.com/lorafuse/lorafuse/internal/engine"
	"github.com/lorafuse/lorafuse/internal/ir"
	"github.com/lorafuse/lorafuse/internal/model"
	"github.com/lorafuse/lorafuse/internal/nn"
	"github.com/lorafuse/lorafuse/internal/train/trainer"
	"github.com/lorafuse/lorafuse/lora"
	"github.com/lorafuse/lorafuse/tensor"
)

// ErrNotFinite is wrapped if a loss or a gradient is NaN or infinite.
var ErrNotFinite = trainer.ErrNotFinite

// ErrOption is wrapped if EngineOptions are invalid.
var ErrOption = errors.New("invalid option")

// referenceName is the result of the reference of a loss.
const referenceName = "reference"

// EngineOptions configures the computation of training steps.
type EngineOptions struct {
	Loss          trainer.Loss // without Emit: of the next token
	MaxTokens     int          // of one micro-batch
	MaxEvalTokens int          // of one evaluation batch; 0: no evaluation
	Optimizer     trainer.Optimizer
	trainer.Adam       // LearningRate is set by each update
	Checkpointing bool // recompute layers in backward
	Recomputed    int  // number of recomputed layers, from the first; 0: all
	Seed          uint64
	MemoryLimit   int64 // bytes, 0: the device's own
	Pack          backend.Pack
	PackLimit     int64 // bytes of packed copies at most; 0: as backend.Packer has it
	Samples       int64 // bytes needed between steps, in addition to the engine
	Shared        bool  // gradients are exchanged with other ranks
}

// check rejects invalid options.
func (o EngineOptions) check() error {
	for _, v := range []struct {
		name, want string
		value      int64
		ok         bool
	}{
		{"MaxTokens", "1 or more", int64(o.MaxTokens), o.MaxTokens >= 1},
		{"MaxEvalTokens", "0 or more", int64(o.MaxEvalTokens), o.MaxEvalTokens >= 0},
		{"Recomputed", "0 (all layers) or more", int64(o.Recomputed), o.Recomputed >= 0},
		{"MemoryLimit", "0 (the device's own) or more", o.MemoryLimit, o.MemoryLimit >= 0},
	} {
		if !v.ok {
			return fmt.Errorf("train: %w: %s: found %v, expected %s", ErrOption, v.name, v.value, v.want)
		}
	}
	if err := cmp.Or(o.Adam.Check(), o.Optimizer.Check()); err != nil {
		return fmt.Errorf("train: %w: %w", ErrOption, err)
	}
	return nil
}

// withDefaults returns the options with a loss.
func (o EngineOptions) withDefaults() EngineOptions {
	if o.Loss.Emit == nil {
		o.Loss = trainer.LossOf(model.NextToken)
	}
	return o
}

// training returns the pass of micro-batches.
func (o EngineOptions) training() *trainer.Pass {
	p := o.Loss.Training(o.MaxTokens)
	p.Gradients = ir.GradOptions{Checkpoint: o.Checkpointing, Segments: o.Recomputed}
	return p
}

// Engine holds a model with an adapter on a device and computes training steps.
type Engine struct {
	*trainer.Trainer

	opts    EngineOptions
	planner *Planner // of the plan; owns the host unless it has a base
	plan    plan

	micro, eval *trainer.Pass
	program     *engine.Program // of micro, alone or shared with other jobs
	memory      Memory
	company     *company // of jobs, which are computed together, or nil
	given       given
}

// given holds the inputs of a program run: the arrays of a batch, the random key, and
// the number of labels of the step.
type given struct {
	batch  *data.Batch
	key    [3]uint32
	labels [1]float32
}

// Array implements nn.Arrays.
func (g *given) Array(name string) ([]byte, bool) {
	switch name {
	case nn.RandomKey:
		return tensor.BytesOf(g.key[:]), true
	case nn.StepLabels:
		return tensor.BytesOf(g.labels[:]), true
	}
	return g.batch.Array(name)
}

// NewEngine plans and compiles the step. Nothing is allocated on the device
// before the plan is known to fit. Errors: backend.ErrOutOfMemory, with the plan.
func NewEngine(ctx context.Context, dev backend.Device, m *model.Model, s *lora.State, o EngineOptions) (*Engine, error) {
	p, err := NewPlanner(dev, m, s)
	if err != nil {
		return nil, err
	}
	return p.Engine(ctx, o)
}

// Engine plans and compiles the step, as NewEngine does. The engine takes ownership of
// the planner.
func (p *Planner) Engine(ctx context.Context, o EngineOptions) (*Engine, error) {
	e, err := p.engine(o)
	if err != nil {
		return nil, err
	}
	if err := load(ctx, []*Engine{e}, nil); err != nil {
		e.free()
		return nil, err
	}
	return e, nil
}

// engine plans an engine, whose programs are still to be loaded.
func (p *Planner) engine(o EngineOptions) (*Engine, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	o = o.withDefaults()
	all, err := p.plan(o)
	if err != nil {
		return nil, err
	}
	return &Engine{
		Trainer: trainer.New(p.host, p.slot, all.step),
		opts:    o, planner: p, plan: all, micro: o.training(), eval: o.Loss.Evaluation(o.MaxEvalTokens),
	}, nil
}

// Accumulate adds the gradients of one micro-batch. draw numbers the dropout
// masks: two micro-batches of a run must not share one.
func (e *Engine) Accumulate(ctx context.Context, b *data.Batch, draw uint32) error {
	if e.company != nil {
		return e.company.wait(b, draw)
	}
	return e.accumulate(ctx, b, draw)
}

func (e *Engine) accumulate(ctx context.Context, b *data.Batch, draw uint32) error {
	e.given.key = [3]uint32{uint32(e.opts.Seed), uint32(e.opts.Seed >> 32), draw}
	e.given.labels[0] = float32(cmp.Or(b.StepTokens, b.LossTokens))
	e.opts.Loss.Prepare(b)
	e.given.batch = b
	if _, err := e.Compute(ctx, e.micro, &e.given, b.Longest()); err != nil {
		return fmt.Errorf("train: %w", err)
	}
	return nil
}

// Step is the result of one optimizer step.
type Step struct {
	Loss     float64   // mean over the labels of the batches
	GradNorm float64   // before clipping
	Means    []float64 // of the other sums of the loss, likewise
}

// Update performs one step of AdamW with the gradients accumulated since the last one,
// and clears them. tokens is the total number of labels; number counts steps from 1. If
// the loss or the norm is not finite, nothing changes and the error is ErrNotFinite.
func (e *Engine) Update(ctx context.Context, tokens, number int, lr float64) (Step, error) {
	a, inverse := e.opts.Adam, float32(0)
	a.LearningRate = lr
	if tokens > 0 {
		inverse = 1 / float32(tokens)
	}
	if e.fused() {
		if err := e.planner.slot.Set(ctx, trainer.LossSum, []float32{e.company.loss}); err != nil {
			return Step{}, err
		}
		e.company.loss = 0
	}
	r, err := e.Step(ctx, a, inverse, number)
	if err != nil && !errors.Is(err, ErrNotFinite) {
		return Step{}, err
	}
	n := float64(max(1, tokens))
	s := Step{Loss: float64(r.Sums[0]) / n, GradNorm: r.GradNorm}
	for _, sum := range r.Sums[1:] {
		s.Means = append(s.Means, float64(sum)/n)
	}
	if err != nil {
		return s, fmt.Errorf("train: step %d: loss %v, gradient norm %v: %w", number, s.Loss, s.GradNorm, ErrNotFinite)
	}
	return s, nil
}

// Evaluate returns the loss of a batch, summed over its labels.
func (e *Engine) Evaluate(ctx context.Context, b *data.Batch) (float64, error) {
	loss, _, err := e.evaluate(ctx, b)
	return loss, err
}

// evaluate also returns the number of correct rows.
func (e *Engine) evaluate(ctx context.Context, b *data.Batch) (loss float64, right int, err error) {
	l := e.opts.Loss
	l.Prepare(b)
	e.given.batch = b
	if loss, right, err = e.Trainer.Evaluate(ctx, l, e.eval, b, &e.given); err != nil {
		err = fmt.Errorf("train: %w", err)
	}
	return loss, right, err
}

// Flops returns the number of operations of a micro-batch.
func (e *Engine) Flops(b *data.Batch) int {
	e.planner.host.Lock() // since it sets sizes of the program, which other runs may share
	defer e.planner.host.Unlock()
	return e.program.Flops(b)
}

// idle returns the adapter targets that do not affect the loss. As in PyTorch, they get
// no gradient and keep their values.
func (e *Engine) idle() (targets []string) {
	trained := map[string]bool{}
	for _, t := range e.Trained() {
		trained[t.Name] = true
	}
	for _, t := range e.planner.slot.State().Placement.Targets {
		if t.SharesWith == "" && !trained[t.Tensors()[0].Key] {
			targets = append(targets, t.Name)
		}
	}
	return targets
}

// State downloads the trained parameters into the adapter's state.
func (e *Engine) State(ctx context.Context) (*lora.State, error) {
	s := e.planner.slot.State()
	return s, e.Values(ctx, s.Values, nil)
}

// Close frees the engine's device memory, except memory shared with others.
func (e *Engine) Close() {
	e.planner.host.Lock()
	defer e.planner.host.Unlock()
	e.free()
}

func (e *Engine) free() {
	e.planner.host.Detach(e.planner.slot)
	if bare := e.planner.bare; bare != nil {
		e.planner.host.Detach(bare)
	}
	if e.planner.base == nil {
		e.planner.host.Close()
	}
}
