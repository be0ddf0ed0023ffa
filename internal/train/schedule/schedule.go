// Package schedule computes the learning rate of every optimizer step. The formulas match transformers' get_scheduler
// (optimization.py), so the same settings give the same learning rates to the last bits.
package schedule

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/lorafuse/lorafuse/internal/suggest"
)

// Kind names a schedule as transformers does.
type Kind string

// The schedules. f is the factor of the base learning rate at step s of T with
// w warm-up steps; all but Constant rise linearly as s/w while s < w, and
// p = (s-w)/(T-w) is the progress after it.
const (
	Constant           Kind = "constant"             // f = 1; it has no warm-up
	ConstantWithWarmup Kind = "constant_with_warmup" // f = 1
	Linear             Kind = "linear"               // f = 1-p
	Cosine             Kind = "cosine"               // f = ½(1+cos(2π·cycles·p)), cycles ½ unless told
	CosineWithRestarts Kind = "cosine_with_restarts" // f = ½(1+cos(π·frac(cycles·p))), cycles 1 unless told
	Polynomial         Kind = "polynomial"           // from 1 to LREnd/LearningRate as (1-p)^Power
)

// Kinds lists the valid names.
func Kinds() []string {
	return []string{
		string(Constant), string(ConstantWithWarmup), string(Linear),
		string(Cosine), string(CosineWithRestarts), string(Polynomial),
	}
}

// UnmarshalText reads the name of a schedule. It fails with ErrKind.
func (k *Kind) UnmarshalText(text []byte) error {
	if !slices.Contains(Kinds(), string(text)) {
		return fmt.Errorf("%w: %s", ErrKind, suggest.Expected(string(text), Kinds()))
	}
	*k = Kind(text)
	return nil
}

// The errors of New, for errors.Is.
var (
	ErrKind    = errors.New("unknown learning-rate schedule")
	ErrSetting = errors.New("invalid learning-rate schedule")
)

// Config describes a schedule. Zero NumCycles and Power mean transformers'
// defaults: ½ cycle for Cosine, 1 for CosineWithRestarts, power 1.
type Config struct {
	Kind         Kind
	LearningRate float64 // the base learning rate, reached after the warm-up
	Steps        int     // optimizer steps of the whole run
	WarmupSteps  int
	NumCycles    float64 // Cosine and CosineWithRestarts; transformers has whole numbers for the latter
	Power        float64 // Polynomial
	LREnd        float64 // Polynomial; transformers ends at 1e-7 unless told
}

// Schedule is a learning rate per step. It has no state: At is a function of the step only, so a resumed run
// continues with the same rates.
type Schedule struct {
	base   float64
	factor func(step int) float64
}

// New checks c and makes its schedule.
func New(c Config) (*Schedule, error) {
	switch {
	case !(c.LearningRate >= 0) || math.IsInf(c.LearningRate, 0):
		return nil, fmt.Errorf("%w: learning rate %v, expected a finite number ≥ 0", ErrSetting, c.LearningRate)
	case c.Steps < 0:
		return nil, fmt.Errorf("%w: %d steps, expected ≥ 0", ErrSetting, c.Steps)
	case c.WarmupSteps < 0:
		return nil, fmt.Errorf("%w: %d warm-up steps, expected ≥ 0", ErrSetting, c.WarmupSteps)
	case !(c.NumCycles >= 0) || math.IsInf(c.NumCycles, 0):
		return nil, fmt.Errorf("%w: %v cycles, expected a finite number ≥ 0", ErrSetting, c.NumCycles)
	case !(c.Power >= 0) || math.IsInf(c.Power, 0):
		return nil, fmt.Errorf("%w: power %v, expected a finite number ≥ 0", ErrSetting, c.Power)
	}
	factor, err := c.factor()
	if err != nil {
		return nil, err
	}
	return &Schedule{base: c.LearningRate, factor: factor}, nil
}

// At returns the learning rate of step, counted from 0. Steps before 0 count as 0.
func (s *Schedule) At(step int) float64 {
	return s.base * s.factor(max(step, 0))
}

// WarmupSteps returns the number of warm-up steps for a ratio of all steps, rounded up as in transformers.
func WarmupSteps(ratio float64, steps int) int {
	return int(math.Ceil(ratio * float64(steps)))
}

func (c Config) factor() (func(step int) float64, error) {
	switch c.Kind {
	case Constant:
		return func(int) float64 { return 1 }, nil
	case ConstantWithWarmup:
		return c.afterWarmup(func(int) float64 { return 1 }), nil
	case Linear:
		return c.afterWarmup(c.linear), nil
	case Cosine:
		cycles := or(c.NumCycles, 0.5)
		return c.afterWarmup(func(step int) float64 {
			return max(0, 0.5*(1+math.Cos(math.Pi*cycles*2*c.progress(step))))
		}), nil
	case CosineWithRestarts:
		cycles := or(c.NumCycles, 1)
		return c.afterWarmup(func(step int) float64 {
			p := c.progress(step)
			if p >= 1 {
				return 0
			}
			return max(0, 0.5*(1+math.Cos(math.Pi*math.Mod(cycles*p, 1))))
		}), nil
	case Polynomial:
		return c.polynomial()
	}
	return nil, new(Kind).UnmarshalText([]byte(c.Kind))
}

func (c Config) afterWarmup(f func(step int) float64) func(step int) float64 {
	return func(step int) float64 {
		if step < c.WarmupSteps {
			return float64(step) / float64(max(1, c.WarmupSteps))
		}
		return f(step)
	}
}

// linear uses the remaining steps instead of 1-progress, since transformers rounds that way.
func (c Config) linear(step int) float64 {
	return max(0, float64(c.Steps-step)/float64(max(1, c.Steps-c.WarmupSteps)))
}

func (c Config) progress(step int) float64 {
	return float64(step-c.WarmupSteps) / float64(max(1, c.Steps-c.WarmupSteps))
}

func (c Config) polynomial() (func(step int) float64, error) {
	power, end := or(c.Power, 1), c.LREnd
	if !(end >= 0 && end < c.LearningRate) {
		return nil, fmt.Errorf("%w: polynomial ends at %v, expected a number ≥ 0 and below the learning rate %v",
			ErrSetting, end, c.LearningRate)
	}
	return c.afterWarmup(func(step int) float64 {
		if step >= c.Steps {
			return end / c.LearningRate
		}
		left := 1 - float64(step-c.WarmupSteps)/float64(c.Steps-c.WarmupSteps)
		// The conversion forbids a fused multiply-add: the same bits everywhere.
		return (float64((c.LearningRate-end)*math.Pow(left, power)) + end) / c.LearningRate
	}), nil
}

func or(v, ifZero float64) float64 {
	if v == 0 {
		return ifZero
	}
	return v
}
