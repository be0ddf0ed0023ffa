package session

import (
	"maps"
	"math"
	"slices"

	"github.com/lorafuse/lorafuse/internal/suggest"
)

// Loss selects a loss function by its name, one of [Losses]. With p the log-probability of a
// target, q that of [Datum.Logprobs], A its advantage, w its weight and ρ = exp(p−q), the
// loss of a datum is the sum over its targets of
//
//	cross_entropy        −w·p
//	importance_sampling  −ρ·A
//	ppo                  −min(ρ·A, clip(ρ)·A)   clip_low_threshold 0.8, clip_high_threshold 1.2
//	cispo                −clip(ρ)·p·A           clip_low_threshold 0, clip_high_threshold 4; no gradient by clip(ρ)
//	dro                  −(p·A − ½·beta·(p−q)²) beta, which must be given
//
// The thresholds of clip are ratios. Losses are summed, never averaged.
type Loss struct {
	Name   string
	Config map[string]float64
}

// Keys of [Loss.Config].
const (
	lowKey  = "clip_low_threshold"
	highKey = "clip_high_threshold"
	betaKey = "beta"
)

// reads describes the use of an array of a datum by a loss.
type reads uint8

const (
	never reads = iota
	maybe
	always
)

// loss is a supported loss function and its settings.
type loss struct {
	name                                string
	many                                bool // targets of a token
	weights, logprobs, advantages, clip reads
	defaults                            map[string]float64
	required                            string // a key without a default, or empty

	low, high, beta float64

	// value returns the loss of target i with log-probability p.
	value func(l *loss, d *Datum, i int, p float64) float64
	// slope returns −∂loss/∂p of target i.
	slope func(l *loss, d *Datum, i int) slope
}

// slope is −∂loss/∂p as a function of p: weight + ratio·g(ρ) − pull·(p−q), with g(ρ) = ρ
// from low to high, and below and above outside.
type slope struct {
	weight, pull, ratio, q, low, high, below, above float32
}

var losses = []loss{
	{
		name: "cross_entropy", many: true, weights: maybe,
		value: func(_ *loss, d *Datum, i int, p float64) float64 { return -d.weight(i) * p },
		slope: func(_ *loss, d *Datum, i int) slope { return slope{weight: float32(d.weight(i))} },
	},
	{
		name: "importance_sampling", logprobs: always, advantages: always,
		value: func(_ *loss, d *Datum, i int, p float64) float64 {
			return -product(d.ratio(i, p), d.advantage(i))
		},
		slope: func(_ *loss, d *Datum, i int) slope { return d.unclipped(i) },
	},
	{
		name: "ppo", logprobs: always, advantages: always, clip: maybe, defaults: map[string]float64{lowKey: 0.8, highKey: 1.2},
		value: func(l *loss, d *Datum, i int, p float64) float64 {
			a, ratio := d.advantage(i), d.ratio(i, p)
			return -min(product(ratio, a), product(l.clipped(d, i, ratio), a))
		},
		slope: func(l *loss, d *Datum, i int) slope {
			s := d.unclipped(i)
			low, high := l.thresholds(d, i)
			switch { // the clipped term, which is constant, is the smaller one
			case s.ratio > 0:
				s.high, s.above = float32(high), 0
			case s.ratio < 0:
				s.low, s.below = float32(low), 0
			}
			return s
		},
	},
	{
		name: "cispo", logprobs: always, advantages: always, clip: maybe, defaults: map[string]float64{lowKey: 0, highKey: 4},
		value: func(l *loss, d *Datum, i int, p float64) float64 {
			return -l.clipped(d, i, d.ratio(i, p)) * p * d.advantage(i)
		},
		slope: func(l *loss, d *Datum, i int) slope {
			low, high := l.thresholds(d, i)
			return slope{ratio: d.Advantages[i], q: d.Logprobs[i], low: float32(low), below: float32(low), high: float32(high), above: float32(high)}
		},
	},
	{
		name: "dro", logprobs: always, advantages: always, required: betaKey,
		value: func(l *loss, d *Datum, i int, p float64) float64 {
			off := p - float64(d.Logprobs[i])
			return -(p*d.advantage(i) - l.beta*off*off/2)
		},
		slope: func(l *loss, d *Datum, i int) slope {
			return slope{weight: d.Advantages[i], pull: float32(l.beta), q: d.Logprobs[i], high: math.MaxFloat32}
		},
	},
}

// Losses returns the names of the supported losses.
func Losses() []string {
	var names []string
	for i := range losses {
		names = append(names, losses[i].name)
	}
	return names
}

// resolve finds a loss and its settings.
func (x Loss) resolve() (*loss, error) {
	i := slices.IndexFunc(losses, func(l loss) bool { return l.name == x.Name })
	if i < 0 {
		return nil, invalid("loss_fn", "%s", suggest.Expected(x.Name, Losses()))
	}
	l := losses[i]
	known := slices.Collect(maps.Keys(l.defaults))
	if l.required != "" {
		known = append(known, l.required)
		if _, ok := x.Config[l.required]; !ok {
			return nil, invalid("loss_fn_config", "%s needs %q, which has no default, such as 0.05", l.name, l.required)
		}
	}
	slices.Sort(known)
	set := map[string]*float64{lowKey: &l.low, highKey: &l.high, betaKey: &l.beta}
	for key, v := range l.defaults {
		*set[key] = v
	}
	for _, key := range slices.Sorted(maps.Keys(x.Config)) {
		v := x.Config[key]
		switch {
		case len(known) == 0:
			return nil, invalid("loss_fn_config", "%s has no settings, found %q", l.name, key)
		case !slices.Contains(known, key):
			return nil, invalid("loss_fn_config", "of %s: %s", l.name, suggest.Expected(key, known))
		case math.IsNaN(v) || v < 0 || v > math.MaxFloat32:
			return nil, invalid("loss_fn_config", "%s is %v, expected a finite number of at least 0", key, v)
		}
		*set[key] = v
	}
	if l.low > l.high {
		return nil, invalid("loss_fn_config", "%s is %v, expected at most %v, which %s is", lowKey, l.low, l.high, highKey)
	}
	return &l, nil
}

// form returns the kind of computation of the loss.
func (l *loss) form(forwardOnly bool) form {
	switch {
	case forwardOnly:
		return forward
	case l.logprobs == always:
		return bent
	}
	return linear
}

// thresholds returns the clip thresholds of a target.
func (l *loss) thresholds(d *Datum, i int) (low, high float64) {
	low, high = l.low, l.high
	if d.ClipLow != nil {
		low = float64(d.ClipLow[i])
	}
	if d.ClipHigh != nil {
		high = float64(d.ClipHigh[i])
	}
	return low, high
}

func (l *loss) clipped(d *Datum, i int, ratio float64) float64 {
	low, high := l.thresholds(d, i)
	return min(max(ratio, low), high)
}

func (d *Datum) weight(i int) float64 {
	if d.Weights == nil {
		return 1
	}
	return float64(d.Weights[i])
}

func (d *Datum) advantage(i int) float64 { return float64(d.Advantages[i]) }

// ratio returns ρ.
func (d *Datum) ratio(i int, p float64) float64 { return math.Exp(p - float64(d.Logprobs[i])) }

// unclipped is the slope of −ρ·A.
func (d *Datum) unclipped(i int) slope {
	s := slope{ratio: d.Advantages[i], q: d.Logprobs[i], high: math.MaxFloat32, above: float32(math.Inf(1))}
	if s.ratio == 0 {
		s.above = 0 // it has no gradient, however large ρ is
	}
	return s
}

// product returns ρ·A, and 0 if A is 0, however large ρ is.
func product(ratio, advantage float64) float64 {
	if advantage == 0 {
		return 0
	}
	return ratio * advantage
}
