// Package session trains adapters call by call. The caller passes batches of data and a
// loss, requests an optimizer step with the accumulated gradients, and may save, load
// or serve the adapter between any two calls. The result depends only on the data and
// their order, not on their division into calls or on other sessions of the same base.
package session

import (
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/lorafuse/lorafuse/internal/engine"
	"github.com/lorafuse/lorafuse/internal/model"
	"github.com/lorafuse/lorafuse/internal/nn"
	"github.com/lorafuse/lorafuse/internal/train/trainer"
	"github.com/lorafuse/lorafuse/lora"
)

// Session trains one adapter.
type Session struct {
	group   *Group
	options Options
	modules lora.Model
	model   limits
	logits  int // bytes of logits that exist at once
	state   *lora.State
	slot    *engine.Slot
	trainer *trainer.Trainer
	apart   string // why its data cannot be in a pass with others', or nothing
	step    int    // that were taken

	pending int   // number of datums in the accumulated gradients
	lost    error // why there are fewer than there should be
}

// Options configures the adapter of a session. The zero value trains nothing.
type Options struct {
	Rank                    int     // 1 or more
	Alpha                   float64 // the adapter is scaled by Alpha/Rank; 0: 32
	Seed                    uint64
	Attention, MLP, Unembed bool              // modules to adapt: attention projections, MLP projections, the head
	MaxTokens               int               // of a datum; 0: the model's maximum
	Name                    string            // of the model, saved as base_model_name_or_path
	Optimizer               trainer.Optimizer `json:",omitempty"`

	// Memory is the budget in bytes for the adapter, its gradients and moments, and the pass
	// over a datum. The pass recomputes as few layers as fit it. 0: what the device has.
	Memory int64 `json:"-"`
}

// New starts a session with a new adapter, initialized as by lorafuse train with the same seed.
// Errors: ErrInput, errors of the device, and model.ErrTask for a model that predicts no tokens.
func (g *Group) New(ctx context.Context, o Options) (*Session, error) {
	h := g.host
	m := h.Model()
	if err := m.CheckTask(model.NextToken); err != nil {
		return nil, fmt.Errorf("session: %w", err)
	}
	s := &Session{
		group: g, modules: lora.ModelOf(m.Config.ModelType, m.Modules()), model: limits{m.Config.MaxLength(), m.Config.VocabSize},
		logits: logitBytes,
	}
	c, err := o.config(s.modules, s.model)
	if err != nil {
		return nil, fmt.Errorf("session: %w", err)
	}
	s.options = o
	p, err := lora.NewPlacement(c, s.modules)
	if err == nil {
		err = p.CheckUsed()
	}
	if err != nil {
		return nil, fmt.Errorf("session: %w", invalid("options", "%w", err))
	}
	if s.state, err = p.InitialState(m, o.Seed); err != nil {
		return nil, fmt.Errorf("session: %w", err)
	}
	s.apart = trainer.Apart(h, p)
	plan := trainer.Plan{Optimizer: o.Optimizer, Memory: o.Memory}
	for _, t := range p.Tensors() {
		if t.Role != lora.RoleBase {
			plan.Trained = append(plan.Trained, nn.Trained{Name: t.Key, Shape: t.Shape})
		}
	}
	h.Lock()
	if s.slot, err = h.Attach(s.state); o.Memory > 0 {
		h.Limit(o.Memory)
	}
	h.Unlock()
	if err != nil {
		return nil, fmt.Errorf("session: %w", err)
	}
	s.trainer = trainer.New(h, s.slot, plan)
	if err := s.trainer.Prepare(ctx, DefaultAdam()); err != nil {
		s.Close()
		return nil, fmt.Errorf("session: %w", err)
	}
	return s, nil
}

// DefaultAdam returns the default settings of Tinker's clients.
func DefaultAdam() trainer.Adam {
	return trainer.Adam{LearningRate: 1e-4, Beta1: 0.9, Beta2: 0.95, Eps: 1e-12}
}

// Options returns the options of the session.
func (s *Session) Options() Options { return s.options }

// Step returns the number of steps so far.
func (s *Session) Step() int { return s.step }

// Close frees the session's device memory.
func (s *Session) Close() {
	s.group.host.Lock()
	defer s.group.host.Unlock()
	s.group.host.Detach(s.slot)
}

// Output is the result of a call.
type Output struct {
	Logprobs [][]float32        // of the targets, by datum
	Losses   []float64          // of the datums
	Metrics  map[string]float64 // by name and how they add up over calls, as in loss:sum
}

// GapMetric names the largest difference between the log-probability of a target in the
// data, from sampling, and in training. Only targets with an advantage count. For the
// weights that were sampled from, it is 0 on a batch-invariant device; on other devices
// it reflects the rounding differences between programs.
const GapMetric = "sampler_gap:max"

// ForwardBackward adds the gradients of the losses of data, in order, to those since
// the last step; with forwardOnly it adds none. If data or loss are rejected
// (ErrInput), nothing changes. If the computation fails, the gradients since the last
// step are dropped, and the next step reports this.
func (s *Session) ForwardBackward(ctx context.Context, data []Datum, x Loss, forwardOnly bool) (*Output, error) {
	l, targets, err := s.check(data, x)
	if err != nil {
		return nil, fmt.Errorf("session: %w", err)
	}
	out := &Output{Logprobs: make([][]float32, len(data)), Losses: make([]float64, len(data)), Metrics: map[string]float64{}}
	all := make([]float32, targets)
	for i := range data {
		n := len(data[i].Targets)
		out.Logprobs[i], all = all[:n:n], all[n:]
	}
	c := &call{ctx: ctx, session: s, data: data, loss: l, form: l.form(forwardOnly), out: out, finished: make(chan struct{})}
	s.group.compute(c)
	if c.err != nil {
		if c.begun && !forwardOnly {
			s.drop(c.err)
		}
		return nil, fmt.Errorf("session: datum %d: %w", c.next, c.err)
	}
	if !forwardOnly {
		s.pending += len(data)
	}
	sum, gap := 0.0, 0.0
	for i := range data {
		d := &data[i]
		for j, p := range out.Logprobs[i] {
			out.Losses[i] += l.value(l, d, j, float64(p))
			if l.logprobs == always && d.Advantages[j] != 0 {
				gap = max(gap, math.Abs(float64(p)-float64(d.Logprobs[j])))
			}
		}
		sum += out.Losses[i]
	}
	out.Metrics["loss:sum"] = sum
	if l.logprobs == always {
		out.Metrics[GapMetric] = gap
	}
	return out, nil
}

// check returns the loss and the total number of targets, and rejects data that is
// invalid for the loss or the model.
func (s *Session) check(data []Datum, x Loss) (l *loss, targets int, err error) {
	if l, err = x.resolve(); err != nil {
		return nil, 0, err
	}
	if len(data) == 0 {
		return nil, 0, invalid("data", "found none, expected 1 datum or more")
	}
	limits := s.model
	if s.options.MaxTokens > 0 {
		limits.tokens = min(limits.tokens, s.options.MaxTokens)
	}
	for i := range data {
		d := &data[i]
		if err := d.check(l, limits); err != nil {
			return nil, 0, fmt.Errorf("datum %d: %w", i, err)
		}
		if d.K > 1 && s.kindOf(len(d.Tokens), d.K, forward, 1).rows > math.MaxInt32/limits.vocabulary {
			return nil, 0, fmt.Errorf("datum %d: %w", i, invalid("tokens", "found %d with several targets each, expected fewer", len(d.Tokens)))
		}
		targets += len(d.Targets)
	}
	return l, targets, nil
}

// drop discards the gradients, which may include a part of a failed call.
func (s *Session) drop(why error) {
	s.pending, s.lost = 0, why
}

// OptimStep performs a step with the accumulated gradients and clears them. Without
// gradients it does nothing. If the gradients are not finite, the adapter is unchanged
// and the error is trainer.ErrNotFinite; if an earlier call failed and dropped them, the
// error is ErrDropped. Both clear the gradients. The metrics are grad_norm, before
// clipping, and step.
func (s *Session) OptimStep(ctx context.Context, a trainer.Adam) (map[string]float64, error) {
	if err := a.Check(); err != nil {
		return nil, fmt.Errorf("session: %w: %w", ErrInput, err)
	}
	metrics := map[string]float64{"grad_norm": 0, "step": float64(s.step)}
	if why := s.lost; why != nil {
		if err := s.trainer.Clear(ctx); err != nil {
			return nil, fmt.Errorf("session: %w", err)
		}
		s.pending, s.lost = 0, nil
		return nil, fmt.Errorf("session: step %d: %w: a call has failed since the last step: %w", s.step+1, ErrDropped, why)
	}
	if s.pending == 0 {
		return metrics, nil
	}
	// A step always completes, even if ctx ends.
	r, err := s.trainer.Step(context.WithoutCancel(ctx), a, 1, s.step+1)
	if errors.Is(err, trainer.ErrNotFinite) {
		s.pending = 0
		return nil, fmt.Errorf("session: %w; the adapter has not changed", err)
	}
	if err != nil {
		s.drop(err)
		return nil, fmt.Errorf("session: %w", err)
	}
	s.pending = 0
	s.step++
	metrics["grad_norm"], metrics["step"] = r.GradNorm, float64(s.step)
	return metrics, nil
}
