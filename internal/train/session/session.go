// Package session trains adapters call by call. The caller passes batches of data and a
// loss, requests an optimizer step with the accumulated gradients, and may save, load
// or serve the adapter between any two calls. The result depends only on the data and
// their order, not on their division into calls or on other sessions of the same base.
package session

import (
	"context"
	"fmt"
	"math"
	"slices"

	"github.com/lorafuse/lorafuse/internal/engine"
	"github.com/lorafuse/lorafuse/internal/ir"
	"github.com/lorafuse/lorafuse/lora"
	"github.com/lorafuse/lorafuse/tensor"
)

// Session trains one adapter.
type Session struct {
	base    *Base
	options Options
	state   *lora.State
	slot    *engine.Slot
	trained []lora.TensorSpec
	step    int // that were taken

	pending int   // number of datums in the accumulated gradients
	lost    error // why there are fewer than there should be
	feed    feed
	adam    adamFeed
}

// Options configures the adapter of a session. The zero value trains nothing.
type Options struct {
	Rank                    int     // 1 or more
	Alpha                   float64 // the adapter is scaled by Alpha/Rank; 0: 32
	Seed                    uint64
	Attention, MLP, Unembed bool   // modules to adapt: attention projections, MLP projections, the head
	MaxTokens               int    // of a datum; 0: the model's maximum
	Name                    string // of the model, saved as base_model_name_or_path
}

// New starts a session with a new adapter, initialized as by lorafuse train with the
// same seed. Errors: ErrInput, those of the device.
func (b *Base) New(ctx context.Context, o Options) (*Session, error) {
	c, err := b.config(&o)
	if err != nil {
		return nil, fmt.Errorf("session: %w", err)
	}
	p, err := lora.NewPlacement(c, b.modules)
	if err == nil {
		err = p.Strict()
	}
	if err != nil {
		return nil, fmt.Errorf("session: %w", invalid("options", "%w", err))
	}
	s := &Session{base: b, options: o}
	if s.state, err = p.Begin(b.host.Model(), o.Seed); err != nil {
		return nil, fmt.Errorf("session: %w", err)
	}
	s.trained = slices.DeleteFunc(p.Tensors(), func(t lora.TensorSpec) bool { return t.Role == lora.RoleBase })
	if s.slot, err = b.host.NewSlot(s.state); err != nil {
		return nil, fmt.Errorf("session: %w", err)
	}
	if _, err = b.host.Programs(ctx, s.slot, s.stepper(DefaultAdam().constants())); err != nil { // which uploads the whole session to the device
		s.slot.Free()
		return nil, fmt.Errorf("session: %w", err)
	}
	b.sessions = append(b.sessions, s)
	return s, nil
}

// Options returns the options of the session.
func (s *Session) Options() Options { return s.options }

// Step returns the number of steps so far.
func (s *Session) Step() int { return s.step }

// Close frees the session's device memory.
func (s *Session) Close() {
	i := slices.Index(s.base.sessions, s)
	if i < 0 {
		return
	}
	s.base.sessions = slices.Delete(s.base.sessions, i, i+1)
	s.base.forget(s)
	s.slot.Free()
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
	all, sum, gap := make([]float32, targets), 0.0, 0.0
	form := forward
	switch {
	case forwardOnly:
	case l.bends():
		form = bent
	default:
		form = linear
	}
	for i := range data {
		d := &data[i]
		own := all[:len(d.Targets):len(d.Targets)]
		all = all[len(own):]
		if begun, err := s.pass(ctx, d, l, form, own); err != nil {
			if form != forward && (i > 0 || begun) {
				s.drop(err)
			}
			return nil, fmt.Errorf("session: datum %d: %w", i, err)
		}
		for j, p := range own {
			out.Losses[i] += l.value(l, d, j, float64(p))
			if l.logprobs == always && d.Advantages[j] != 0 {
				gap = max(gap, math.Abs(float64(p)-float64(d.Logprobs[j])))
			}
		}
		out.Logprobs[i] = own
		sum += out.Losses[i]
	}
	if form != forward {
		s.pending += len(data)
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
	limits := s.base.limits
	if s.options.MaxTokens > 0 {
		limits.tokens = min(limits.tokens, s.options.MaxTokens)
	}
	for i := range data {
		d := &data[i]
		if err := d.check(l, limits); err != nil {
			return nil, 0, fmt.Errorf("datum %d: %w", i, err)
		}
		if d.K > 1 && s.base.passOf(d, forward).rows > math.MaxInt32/limits.vocabulary {
			return nil, 0, fmt.Errorf("datum %d: %w", i, invalid("tokens", "found %d with several targets each, expected fewer", len(d.Tokens)))
		}
		targets += len(d.Targets)
	}
	return l, targets, nil
}

// pass computes one datum, and stores the log-probabilities of its targets. begun
// reports whether gradients may have changed.
func (s *Session) pass(ctx context.Context, d *Datum, l *loss, f form, logprobs []float32) (begun bool, err error) {
	if err := ctx.Err(); err != nil {
		return false, err
	}
	what := s.base.passOf(d, f)
	p, err := s.base.pass(ctx, s.slot, what)
	if err != nil {
		return false, err
	}
	s.feed.set(d, l, what, s.base.limits.vocabulary)
	if err := p.Run(ctx, s.slot, &s.feed, len(d.Tokens)); err != nil {
		return true, err
	}
	if err := p.Read(ctx, lossesResult, logprobs); err != nil {
		return true, err
	}
	for i, loss := range logprobs {
		logprobs[i] = 0 - loss
	}
	return true, nil
}

// drop discards the gradients, which may include a part of a failed call.
func (s *Session) drop(why error) {
	s.pending, s.lost = 0, why
}

// clear sets the gradients to zero.
func (s *Session) clear(ctx context.Context) error {
	return s.fill(ctx, gradientPrefix, nil)
}

// fill sets the values stored for the parameters under a prefix; nil means zeros.
func (s *Session) fill(ctx context.Context, prefix string, values map[string][]float32) error {
	var zero []float32
	for _, t := range s.trained {
		x := values[prefix+t.Key]
		if values == nil {
			n := elements(t.Shape)
			zero = slices.Grow(zero[:0], n)[:n]
			x = zero
		}
		if err := s.slot.Set(ctx, prefix+t.Key, x); err != nil {
			return fmt.Errorf("session: %w", err)
		}
	}
	return nil
}

// read returns copies of the values stored for the parameters under a prefix.
func (s *Session) read(ctx context.Context, prefix string) ([]lora.Tensor, error) {
	var out []lora.Tensor
	for _, t := range s.trained {
		x := make([]float32, elements(t.Shape))
		if err := s.base.host.ReadSlot(ctx, s.slot, prefix+t.Key, x); err != nil {
			return nil, fmt.Errorf("session: %w", err)
		}
		own, err := tensor.New(tensor.F32, t.Shape...)
		if err == nil {
			err = tensor.FromFloat32(own.Data, x, tensor.F32)
		}
		if err != nil {
			return nil, fmt.Errorf("session: %w", err)
		}
		out = append(out, lora.Tensor{Key: prefix + t.Key, Tensor: own})
	}
	return out, nil
}

func elements(shape []int) int { return ir.ShapeOf(shape...).Elements(nil) }
