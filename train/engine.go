// Package train is the fine-tuning loop: the compiled training step, the run
// that a configuration describes, and its checkpoints.
package train

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/data"
	"github.com/lorafuse/lorafuse/graph"
	"github.com/lorafuse/lorafuse/graph/exec"
	"github.com/lorafuse/lorafuse/ir"
	"github.com/lorafuse/lorafuse/lora"
	"github.com/lorafuse/lorafuse/model"
	"github.com/lorafuse/lorafuse/nn"
	"github.com/lorafuse/lorafuse/tensor"
)

// ErrNotFinite is wrapped where a loss or a gradient is NaN or infinite.
var ErrNotFinite = errors.New("not finite")

// ErrOption is wrapped where EngineOptions make no step.
var ErrOption = errors.New("invalid option")

// Names of the params of the training graphs that are not the model's.
const (
	lossParam    = "loss.sum"
	inverseParam = "step.inverse_tokens"
	ratesParam   = "step.rates"
	normResult   = "step.norm"
	evalResult   = "eval.loss"
)

// EngineOptions fix what a training step computes.
type EngineOptions struct {
	MaxTokens     int // of one micro-batch
	MaxEvalTokens int // of one evaluation batch; 0: no evaluation
	Beta1, Beta2  float64
	Eps           float64
	WeightDecay   float64
	MaxGradNorm   float64 // 0: no clipping
	Checkpointing bool    // recompute layers in backward
	Recomputed    int     // how many of them, the first ones; 0: all
	Seed          uint64
	MemoryLimit   int64 // bytes, 0: the device's own
	Pack          backend.Pack
	PackLimit     int64 // bytes of packed copies at most; 0: half of the memory that is free
}

// check refuses options of which no step can be made: without Eps, AdamW divides
// zero by zero where a gradient is zero.
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
	return nil
}

// Engine holds a model with an adapter on a device and computes training steps.
type Engine struct {
	opts  EngineOptions
	dev   backend.Device
	model *model.Model
	state *lora.State
	store *nn.Store

	trained             []nn.Trained
	inputs, evalInputs  []nn.Input // of micro-batches and evaluations
	tables              []nn.Derived
	length              int // of the texts that the tables on the device are for
	layers              int
	micro, update, eval *exec.Executable
	prepare             *exec.Executable // makes what the trained parameters alone decide, or nil
	stale               bool             // they have changed since
	memory              Memory

	// What goes to the device and comes back, here so that a step allocates nothing.
	given   given
	scalars struct {
		rates               [3]float32
		inverse, loss, norm [1]float32
	}
}

// given is what a run is given: the arrays of a batch, and the random key.
type given struct {
	batch *data.Batch
	key   [3]uint32
}

// Array implements nn.Arrays.
func (g *given) Array(name string) ([]byte, bool) {
	if name == nn.RandomKey {
		return tensor.BytesOf(g.key[:]), true
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

// Engine plans and compiles the step, as NewEngine does.
func (p *Planner) Engine(ctx context.Context, o EngineOptions) (*Engine, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	e := &Engine{opts: o, dev: p.dev, model: p.model, state: p.state, store: nn.NewStore(p.dev)}
	programs, constants, err := e.plan(p.adapter)
	if err != nil {
		return nil, err
	}
	if e.memory, err = p.measure(o, e.trained, programs, constants); err != nil {
		return nil, err
	}
	if err := e.memory.check(p.dev, o.MemoryLimit); err != nil {
		return nil, err
	}
	for _, x := range []struct {
		program *ir.Program
		dst     **exec.Executable
	}{{programs.micro, &e.micro}, {programs.update, &e.update}, {programs.eval, &e.eval}, {programs.prepare, &e.prepare}} {
		if x.program == nil {
			continue
		}
		if *x.dst, err = exec.Load(x.program, p.dev); err != nil {
			e.Close()
			return nil, err
		}
	}
	if err := e.fill(ctx, constants); err != nil {
		e.Close()
		return nil, err
	}
	return e, nil
}

// fill gives the executables their arguments.
func (e *Engine) fill(ctx context.Context, constants map[string]*tensor.Tensor) error {
	if err := e.store.Import(ctx, e.model, e.model.Used()); err != nil {
		return err
	}
	if err := e.store.SetAll(ctx, constants); err != nil {
		return err
	}
	for _, t := range e.trained {
		if err := e.store.SetFloat32s(ctx, t.Name, e.state.Values[t.Name]); err != nil {
			return err
		}
	}
	if err := e.setTables(ctx, 1); err != nil {
		return err
	}
	e.stale = true
	return e.store.Bind(e.executables()...)
}

// executables are those that there are.
func (e *Engine) executables() []*exec.Executable {
	all := []*exec.Executable{e.micro, e.update, e.eval, e.prepare}
	return slices.DeleteFunc(all, func(x *exec.Executable) bool { return x == nil })
}

// programs are those of an engine; eval and prepare may be nil.
type programs struct{ micro, update, eval, prepare *ir.Program }

// plan lays out the programs: a micro-batch that adds to gradients, with what is
// made for it beforehand, an update by them, and an evaluation.
func (e *Engine) plan(adapter nn.Adapter) (p programs, constants map[string]*tensor.Tensor, err error) {
	if constants, err = e.planMicro(adapter, &p); err != nil {
		return p, nil, err
	}
	if p.update, err = e.planUpdate(); err != nil {
		return p, nil, err
	}
	if e.opts.MaxEvalTokens > 0 {
		if p.eval, err = e.planEvaluation(adapter); err != nil {
			return p, nil, err
		}
	}
	return p, constants, nil
}

// planMicro also finds what is trained, and how many layers there are.
func (e *Engine) planMicro(adapter nn.Adapter, to *programs) (constants map[string]*tensor.Tensor, err error) {
	micro := graph.New()
	b := nn.NewBuilder(micro, e.model, nn.Options{Bounds: map[string]int{nn.Tokens: e.opts.MaxTokens}, Adapter: adapter, Training: true, Prepare: true})
	loss := e.model.Build(b).Loss(b, model.NextToken)
	e.trained, e.layers, e.inputs, e.tables = b.Trained(), b.Segments(), b.Inputs(), b.Tables()
	params := make([]graph.Tensor, len(e.trained))
	for i, t := range e.trained {
		params[i] = b.Train(t.Name, t.Shape...)
		if n := product(t.Shape); len(e.state.Values[t.Name]) != n {
			return nil, fmt.Errorf("train: the adapter's state has %d elements for %q, expected %d", len(e.state.Values[t.Name]), t.Name, n)
		}
	}
	grads := micro.GradientsWith(loss, params, ir.GradOptions{Checkpoint: e.opts.Checkpointing, Segments: e.opts.Recomputed})
	p := micro.Program().Accumulate(lossParam, loss)
	for i, t := range e.trained {
		p.Accumulate(gradParam(t.Name), grads[i])
	}
	if to.micro, err = p.Plan(e.dev.Supports); err != nil {
		return nil, err
	}
	if p := b.Preparation(); p != nil {
		to.prepare, err = p.Plan(e.dev.Supports)
	}
	return b.Constants(), err
}

func (e *Engine) planEvaluation(adapter nn.Adapter) (*ir.Program, error) {
	g := graph.New()
	b := nn.NewBuilder(g, e.model, nn.Options{Bounds: map[string]int{nn.Tokens: e.opts.MaxEvalTokens}, Adapter: adapter, Prepare: true})
	loss := e.model.Build(b).Loss(b, model.NextToken)
	e.evalInputs = b.Inputs()
	return g.Program().Result(evalResult, loss).Plan(e.dev.Supports)
}

// planUpdate clips the gradients by their norm over all trained parameters,
// as torch.nn.utils.clip_grad_norm_ does, and takes one step of AdamW.
func (e *Engine) planUpdate() (*ir.Program, error) {
	g := graph.New()
	grads := make([]graph.Tensor, len(e.trained))
	var squares graph.Tensor
	for i, t := range e.trained {
		grads[i] = g.Param(gradParam(t.Name), tensor.F32, ir.ShapeOf(t.Shape...)...)
		if s := grads[i].SumSquares(); i == 0 {
			squares = s
		} else {
			squares = squares.Add(s)
		}
	}
	scale := g.Param(inverseParam, tensor.F32)
	norm := squares.Apply(ir.Sqrt).Mul(scale)
	if e.opts.MaxGradNorm > 0 {
		clip := g.Const(e.opts.MaxGradNorm).Div(norm.AddScalar(1e-6)).Min(g.Const(1))
		scale = scale.Mul(clip)
	}
	// An infinite norm makes the scale NaN, so that nothing is updated.
	scale = scale.Add(norm.Sub(norm))
	rates := g.Of(g.IR().Param(ratesParam, ir.AdamWRates))
	p := g.Program().Result(normResult, norm)
	attr := ir.AdamWAttr{Beta1: e.opts.Beta1, Beta2: e.opts.Beta2, Eps: e.opts.Eps}
	for i, t := range e.trained {
		param := func(name string) graph.Tensor { return g.Param(name, tensor.F32, ir.ShapeOf(t.Shape...)...) }
		w, m, v := param(t.Name).AdamW(param(firstMoment(t.Name)), param(secondMoment(t.Name)), grads[i], rates, scale, attr)
		p.Update(t.Name, w).Update(firstMoment(t.Name), m).Update(secondMoment(t.Name), v)
		p.Update(gradParam(t.Name), g.Const(0, ir.ShapeOf(t.Shape...)...))
	}
	p.Update(lossParam, g.Const(0))
	return p.Plan(e.dev.Supports)
}

func gradParam(name string) string    { return "gradient." + name }
func firstMoment(name string) string  { return "moment1." + name }
func secondMoment(name string) string { return "moment2." + name }

// Accumulate adds the gradients of one micro-batch. draw numbers the dropout
// masks: two micro-batches of a run must not share one.
func (e *Engine) Accumulate(ctx context.Context, b *data.Batch, draw uint32) error {
	e.given.key = [3]uint32{uint32(e.opts.Seed), uint32(e.opts.Seed >> 32), draw}
	return e.run(ctx, e.micro, e.inputs, b)
}

func (e *Engine) run(ctx context.Context, x *exec.Executable, inputs []nn.Input, b *data.Batch) error {
	if e.stale && e.prepare != nil {
		if err := e.prepare.RunWait(ctx); err != nil {
			return err
		}
	}
	e.stale = false
	e.given.batch = b
	if err := e.store.Feed(ctx, x, inputs, &e.given); err != nil {
		return fmt.Errorf("train: %w", err)
	}
	if err := e.setTables(ctx, b.Longest()); err != nil {
		return err
	}
	return x.RunWait(ctx)
}

// setTables brings the derived tables to the device: all of them at first, and
// for texts of another length those that depend on it.
func (e *Engine) setTables(ctx context.Context, length int) error {
	changes := func(t nn.Derived) bool { return t.Changes() }
	if e.length != 0 && (e.length == length || !slices.ContainsFunc(e.tables, changes)) {
		return nil
	}
	e.length = length
	return e.store.SetTables(ctx, e.tables, length)
}

// Step is what one optimizer step reports.
type Step struct {
	Loss     float64 // mean over the labels
	GradNorm float64 // before clipping
}

// Update takes one step of AdamW with the gradients accumulated since the last
// one, of so many labels in all, and clears them. number counts steps from 1.
// Where the loss or the norm is not finite nothing is changed and the error is
// ErrNotFinite.
func (e *Engine) Update(ctx context.Context, tokens, number int, lr float64) (Step, error) {
	o, t := e.opts, float64(number)
	x := &e.scalars
	x.rates = [3]float32{
		float32(1 - lr*o.WeightDecay),
		float32(lr / (1 - math.Pow(o.Beta1, t))),
		float32(math.Sqrt(1 - math.Pow(o.Beta2, t))),
	}
	x.inverse[0] = 0
	if tokens > 0 {
		x.inverse[0] = 1 / float32(tokens)
	}
	if err := e.store.GetFloat32s(ctx, lossParam, x.loss[:]); err != nil {
		return Step{}, err
	}
	if math.IsNaN(float64(x.loss[0])) || math.IsInf(float64(x.loss[0]), 0) {
		x.inverse[0] = float32(math.NaN()) // a loss without a value updates nothing
	}
	if err := e.store.SetFloat32s(ctx, ratesParam, x.rates[:]); err != nil {
		return Step{}, err
	}
	if err := e.store.SetFloat32s(ctx, inverseParam, x.inverse[:]); err != nil {
		return Step{}, err
	}
	e.stale = true
	if err := e.update.RunWait(ctx); err != nil {
		return Step{}, err
	}
	if err := e.store.GetFloat32s(ctx, normResult, x.norm[:]); err != nil {
		return Step{}, err
	}
	s := Step{Loss: float64(x.loss[0]) / float64(max(1, tokens)), GradNorm: float64(x.norm[0])}
	if math.IsNaN(s.Loss+s.GradNorm) || math.IsInf(s.Loss+s.GradNorm, 0) {
		return s, fmt.Errorf("train: step %d: loss %v, gradient norm %v: %w", number, s.Loss, s.GradNorm, ErrNotFinite)
	}
	return s, nil
}

// Evaluate is the loss of a batch, summed over its labels.
func (e *Engine) Evaluate(ctx context.Context, b *data.Batch) (float64, error) {
	if err := e.run(ctx, e.eval, e.evalInputs, b); err != nil {
		return 0, err
	}
	sum := &e.scalars.loss
	err := e.store.GetFloat32s(ctx, evalResult, sum[:])
	return float64(sum[0]), err
}

// Gradient copies the accumulated gradient of the trained parameter called
// name: the sum over labels, not yet their mean.
func (e *Engine) Gradient(ctx context.Context, name string, dst []float32) error {
	return e.store.GetFloat32s(ctx, gradParam(name), dst)
}

// Trained lists the trained parameters.
func (e *Engine) Trained() []nn.Trained { return e.trained }

// Flops is the work of one micro-batch of the given number of tokens.
func (e *Engine) Flops(tokens int) int {
	if e.micro.SetDim(nn.Tokens, tokens) != nil {
		return 0
	}
	return e.micro.Flops()
}

// State brings the trained parameters back into the adapter's state.
func (e *Engine) State(ctx context.Context) (*lora.State, error) {
	for _, t := range e.trained {
		if err := e.store.GetFloat32s(ctx, t.Name, e.state.Values[t.Name]); err != nil {
			return nil, err
		}
	}
	return e.state, nil
}

// Moments copies AdamW's two moments of all trained parameters, by name.
func (e *Engine) Moments(ctx context.Context) (map[string][]float32, error) {
	out := map[string][]float32{}
	for _, t := range e.trained {
		for _, name := range []string{firstMoment(t.Name), secondMoment(t.Name)} {
			out[name] = make([]float32, product(t.Shape))
			if err := e.store.GetFloat32s(ctx, name, out[name]); err != nil {
				return nil, err
			}
		}
	}
	return out, nil
}

// SetMoments is the inverse of Moments.
func (e *Engine) SetMoments(ctx context.Context, moments map[string][]float32) error {
	for _, t := range e.trained {
		for _, name := range []string{firstMoment(t.Name), secondMoment(t.Name)} {
			x := moments[name]
			if len(x) != product(t.Shape) {
				return fmt.Errorf("train: the moments have %d elements for %q, expected %d", len(x), name, product(t.Shape))
			}
			if err := e.store.SetFloat32s(ctx, name, x); err != nil {
				return err
			}
		}
	}
	return nil
}

// Close frees the device's memory.
func (e *Engine) Close() {
	for _, x := range e.executables() {
		x.Close()
	}
	e.store.Free()
}

func product(dims []int) int {
	n := 1
	for _, d := range dims {
		n *= d
	}
	return n
}
