// Package train is the fine-tuning loop: the compiled training step, the run
// that a configuration describes, and its checkpoints.
package train

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/internal/data"
	"github.com/lorafuse/lorafuse/internal/engine"
	"github.com/lorafuse/lorafuse/internal/host"
	"github.com/lorafuse/lorafuse/internal/ir"
	"github.com/lorafuse/lorafuse/internal/model"
	"github.com/lorafuse/lorafuse/internal/nn"
	"github.com/lorafuse/lorafuse/lora"
	"github.com/lorafuse/lorafuse/tensor"
)

// ErrNotFinite is wrapped if a loss or a gradient is NaN or infinite.
var ErrNotFinite = errors.New("not finite")

// ErrOption is wrapped if EngineOptions are invalid.
var ErrOption = errors.New("invalid option")

// Names of the values that the training graphs read and write in addition to the model.
const (
	lossName   = "loss.sum"
	reportName = "step.report" // of the last update: loss, gradient norm
	evalResult = "eval.loss"
	evalScores = "eval.scores"

	sumsName      = "loss.sums"
	evalSums      = "eval.sums"
	referenceName = "reference"

	ratesInput   = "rates"
	inverseInput = "inverse tokens"
	mapsInput    = "maps of moments"
)

// EngineOptions configures the computation of training steps.
type EngineOptions struct {
	Loss          Loss      // without Emit: of the next token
	MaxTokens     int       // of one micro-batch
	MaxEvalTokens int       // of one evaluation batch; 0: no evaluation
	Optimizer     Optimizer // "": AdamW
	Beta1, Beta2  float64
	Eps           float64
	WeightDecay   float64
	MaxGradNorm   float64 // 0: no clipping
	Checkpointing bool    // recompute layers in backward
	Recomputed    int     // number of recomputed layers, from the first; 0: all
	Seed          uint64
	MemoryLimit   int64 // bytes, 0: the device's own
	Pack          backend.Pack
	PackLimit     int64 // bytes of packed copies at most; 0: as backend.Packer has it
	Samples       int64 // bytes needed between steps, in addition to the engine
}

// check rejects invalid options: without Eps, AdamW divides zero by zero for a zero
// gradient.
func (o EngineOptions) check() error {
	for _, v := range []struct {
		name, want string
		value      float64
		ok         bool
	}{
		{"MaxTokens", "1 or more", float64(o.MaxTokens), o.MaxTokens >= 1},
		{"MaxEvalTokens", "0 or more", float64(o.MaxEvalTokens), o.MaxEvalTokens >= 0},
		{"Beta1", "at least 0 and less than 1, such as 0.9", o.Beta1, o.Beta1 >= 0 && o.Beta1 < 1},
		{"Beta2", "at least 0 and less than 1, such as 0.999", o.Beta2, o.Beta2 >= 0 && o.Beta2 < 1},
		{"Eps", "a number of float32 above 0, such as 1e-8", o.Eps, float32(o.Eps) > 0 && o.Eps <= math.MaxFloat32},
		{"WeightDecay", "0 or more", o.WeightDecay, o.WeightDecay >= 0 && !math.IsInf(o.WeightDecay, 1)},
		{"MaxGradNorm", "0 (no clipping) or more", o.MaxGradNorm, o.MaxGradNorm >= 0},
		{"Recomputed", "0 (all layers) or more", float64(o.Recomputed), o.Recomputed >= 0},
		{"MemoryLimit", "0 (the device's own) or more", float64(o.MemoryLimit), o.MemoryLimit >= 0},
	} {
		if !v.ok {
			return fmt.Errorf("train: %w: %s: found %v, expected %s", ErrOption, v.name, v.value, v.want)
		}
	}
	return o.Optimizer.check()
}

func (o EngineOptions) constants() ir.AdamWAttr {
	return ir.AdamWAttr{Beta1: o.Beta1, Beta2: o.Beta2, Eps: o.Eps}
}

// loss returns the loss, by default of the next token.
func (o EngineOptions) loss() Loss {
	if o.Loss.Emit == nil {
		return LossOf(model.NextToken)
	}
	return o.Loss
}

// report returns room for the report of an update.
func (o EngineOptions) report() []float32 { return make([]float32, 2+o.loss().Sums) }

// Engine holds a model with an adapter on a device and computes training steps.
type Engine struct {
	opts EngineOptions
	host *host.Host
	base *Base // owner of the host; nil if the engine owns it
	slot *engine.Slot
	bare *engine.Slot // without the adapter; nil without a reference

	trained             []nn.Trained
	layers              int
	micro, update, eval *engine.Program // eval may be nil
	reference           *engine.Program // may be nil
	memory              Memory
	company             *company // of jobs, which are computed together, or nil

	// Buffers for transfers from and to the device, kept here so that a step allocates
	// nothing.
	given   given
	loss    [1]float32
	report  []float32
	rates   [3]float32
	inverse [1]float32
	maps    []float32 // of moments of 8 bits
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

// Array implements nn.Arrays, for updates.
func (e *Engine) Array(name string) ([]byte, bool) {
	switch name {
	case ratesInput:
		return tensor.BytesOf(e.rates[:]), true
	case inverseInput:
		return tensor.BytesOf(e.inverse[:]), true
	case mapsInput:
		return tensor.BytesOf(e.maps), true
	}
	return nil, false
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
	if err := o.check(); err != nil {
		return nil, err
	}
	plan, err := p.plan(o)
	if err != nil {
		return nil, err
	}
	e := &Engine{opts: o, maps: o.Optimizer.maps(), report: o.report(), host: p.host, base: p.base, slot: p.slot, bare: p.bare, trained: plan.micro.Trained, layers: plan.micro.Segments}
	if e.memory, err = p.measure(o, plan); err != nil {
		return nil, err
	}
	if err := e.memory.check(p.host.Info(), o.MemoryLimit); err != nil {
		return nil, err
	}
	programs, err := p.host.LoadAll(ctx, nil, p.placed(plan.drafts(), plan.reference)...)
	if err != nil {
		e.free()
		return nil, err
	}
	e.use(plan, programs)
	return e, nil
}

// use assigns the compiled programs of a plan's drafts.
func (e *Engine) use(p plan, programs []*engine.Program) {
	for i, d := range p.drafts() {
		switch d {
		case p.micro:
			e.micro = programs[i]
		case p.update:
			e.update = programs[i]
		case p.eval:
			e.eval = programs[i]
		case p.reference:
			e.reference = programs[i]
		}
	}
}

// Accumulate adds the gradients of one micro-batch. draw numbers the dropout
// masks: two micro-batches of a run must not share one.
func (e *Engine) Accumulate(ctx context.Context, b *data.Batch, draw uint32) error {
	if e.company != nil {
		return e.company.wait(b, draw)
	}
	e.host.Lock()
	defer e.host.Unlock()
	if err := e.accumulate(ctx, b, draw); err != nil || e.base == nil {
		return err
	}
	return e.host.Wait() // so that the errors that others find are not of this
}

func (e *Engine) accumulate(ctx context.Context, b *data.Batch, draw uint32) error {
	e.given.key = [3]uint32{uint32(e.opts.Seed), uint32(e.opts.Seed >> 32), draw}
	e.given.labels[0] = float32(cmp.Or(b.StepTokens, b.LossTokens))
	return e.run(ctx, e.micro, b)
}

func (e *Engine) run(ctx context.Context, p *engine.Program, b *data.Batch) error {
	e.opts.loss().mark(b)
	e.given.batch = b
	if err := p.Run(ctx, e.slot, &e.given, b.Longest()); err != nil {
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
	e.rates = e.opts.constants().Rates(lr, e.opts.WeightDecay, number)
	e.inverse[0] = 0
	if tokens > 0 {
		e.inverse[0] = 1 / float32(tokens)
	}
	e.host.Lock()
	defer e.host.Unlock()
	if err := e.host.Commit(); err != nil {
		return Step{}, err
	}
	e.slot.Changed()
	if e.company != nil && e.company.fused {
		if err := e.slot.Set(ctx, lossName, []float32{e.company.loss}); err != nil {
			return Step{}, err
		}
		e.company.loss = 0
	}
	if err := e.update.Run(ctx, e.slot, e, 1); err != nil {
		return Step{}, err
	}
	if err := e.host.ReadSlot(ctx, e.slot, reportName, e.report); err != nil {
		return Step{}, err
	}
	n := float64(max(1, tokens))
	s := Step{Loss: float64(e.report[0]) / n, GradNorm: float64(e.report[1])}
	for _, sum := range e.report[2:] {
		s.Means = append(s.Means, float64(sum)/n)
	}
	if math.IsNaN(s.Loss+s.GradNorm) || math.IsInf(s.Loss+s.GradNorm, 0) {
		return s, fmt.Errorf("train: step %d: loss %v, gradient norm %v: %w", number, s.Loss, s.GradNorm, ErrNotFinite)
	}
	return s, nil
}

// Evaluate returns the loss of a batch, summed over its labels.
func (e *Engine) Evaluate(ctx context.Context, b *data.Batch) (float64, error) {
	e.host.Lock()
	defer e.host.Unlock()
	if err := e.run(ctx, e.eval, b); err != nil {
		return 0, err
	}
	err := e.host.ReadSlot(ctx, e.slot, evalResult, e.loss[:])
	return float64(e.loss[0]), err
}

// right returns the number of correct rows in the batch that was evaluated last.
func (e *Engine) right(ctx context.Context, b *data.Batch) (int, error) {
	l := e.opts.loss()
	if l.Right == nil {
		return 0, nil
	}
	e.host.Lock()
	defer e.host.Unlock()
	sums, scores := make([]float32, l.Sums), make([]float32, b.Rows()*l.PerRow)
	if l.Sums > 0 {
		if err := e.host.ReadSlot(ctx, e.slot, evalSums, sums); err != nil {
			return 0, err
		}
	}
	if l.Scores != nil {
		if err := e.host.ReadSlot(ctx, e.slot, evalScores, scores); err != nil {
			return 0, err
		}
	}
	return l.Right(b, sums, scores), nil
}

// Gradient copies the accumulated gradient of the trained parameter called
// name: the sum over labels, not yet their mean.
func (e *Engine) Gradient(ctx context.Context, name string, dst []float32) error {
	e.host.Lock()
	defer e.host.Unlock()
	return e.host.ReadSlot(ctx, e.slot, gradParam(name), dst)
}

// Trained lists the trained parameters.
func (e *Engine) Trained() []nn.Trained { return e.trained }

// Flops returns the number of operations of a micro-batch.
func (e *Engine) Flops(b *data.Batch) int { return e.micro.Flops(b) }

// idle returns the adapter targets that do not affect the loss. As in PyTorch, they get
// no gradient and keep their values.
func (e *Engine) idle() (targets []string) {
	trained := map[string]bool{}
	for _, t := range e.trained {
		trained[t.Name] = true
	}
	for _, t := range e.slot.State().Placement.Targets {
		if t.SharesWith == "" && !trained[t.Key(lora.RoleB)] {
			targets = append(targets, t.Name)
		}
	}
	return targets
}

// State downloads the trained parameters into the adapter's state.
func (e *Engine) State(ctx context.Context) (*lora.State, error) {
	e.host.Lock()
	defer e.host.Unlock()
	s := e.slot.State()
	for _, t := range e.trained {
		if err := e.host.ReadSlot(ctx, e.slot, t.Name, s.Values[t.Name]); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// Close frees the engine's device memory, except memory shared with others.
func (e *Engine) Close() {
	e.host.Lock()
	defer e.host.Unlock()
	e.free()
}

func (e *Engine) free() {
	switch {
	case e.base == nil:
		e.host.Close()
	case e.company == nil:
		e.host.Unload(e.micro, e.update, e.eval, e.reference)
	}
	e.slot.Free()
	if e.bare != nil {
		e.bare.Free()
	}
}

func product(dims []int) int {
	n := 1
	for _, d := range dims {
		n *= d
	}
	return n
}
