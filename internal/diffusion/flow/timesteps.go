package flow

import (
	"fmt"
	"math"

	"github.com/lorafuse/lorafuse/internal/suggest"
)

// Density is the distribution of noise levels in training.
type Density string

// Densities. Stable Diffusion 3 defines Uniform, LogitNormal and Mode (arXiv 2403.03206,
// section 3.1); their u selects a level of the table. Sigmoid is logit-normal around 1/2 and
// is itself the level, as in kohya's trainers.
const (
	Uniform     Density = "none"
	LogitNormal Density = "logit_normal"
	Mode        Density = "mode"
	Sigmoid     Density = "sigmoid"
)

// Shift selects how sampled levels are shifted towards noise.
type Shift string

// Shifts: by a constant, or by image size as FLUX.1 and Qwen-Image do for inference.
const (
	NoShift     Shift = ""
	StaticShift Shift = "shift"
	FluxShift   Shift = "flux_shift"
	QwenShift   Shift = "qwen_shift"
)

// Timesteps configures the noise levels of training. The zero value is uniform.
type Timesteps struct {
	Density   Density
	Mean, Std float64 // of LogitNormal
	ModeScale float64 // of Mode
	Scale     float64 // of Sigmoid: the standard deviation before the sigmoid
	Shift     Shift
	By        float64 // of StaticShift
}

// Names lists the names that NamedTimesteps accepts.
var Names = []string{string(Uniform), "uniform", string(LogitNormal), string(Mode), string(Sigmoid), string(StaticShift), string(FluxShift), string(QwenShift)}

// NamedTimesteps returns the settings for a name that trainers use, with their defaults: a
// density, or a shift combined with Sigmoid. Errors: ErrSchedule.
func NamedTimesteps(name string) (Timesteps, error) {
	t := Timesteps{Std: 1, ModeScale: 1.29, Scale: 1, By: 1}
	switch name {
	case string(Uniform), "uniform", "":
		t.Density = Uniform
	case string(LogitNormal), string(Mode), string(Sigmoid):
		t.Density = Density(name)
	case string(StaticShift), string(FluxShift), string(QwenShift):
		t.Density, t.Shift = Sigmoid, Shift(name)
	default:
		return t, fmt.Errorf("flow: %w: timesteps: %s", ErrSchedule, suggest.Expected(name, Names))
	}
	return t, nil
}

// At returns the noise level for a draw and an image with the given number of tokens, and the
// model's timestep input.
func (t Timesteps) At(table Table, d Draw, tokens int) (sigma, timestep float32) {
	if sigma = t.Value(d.Uniform(), d.Normal()); t.Density != Sigmoid {
		sigma = table.At(sigma)
	}
	switch t.Shift {
	case StaticShift:
		sigma = static(sigma, t.By)
	case FluxShift:
		sigma = dynamic(sigma, math.Exp(flux.Mu(tokens)))
	case QwenShift:
		sigma = dynamic(sigma, math.Exp(qwen.Mu(tokens)))
	case NoShift:
	}
	return sigma, sigma * float32(len(table.Sigmas))
}

// Dynamic shifts of FLUX.1 and Qwen-Image.
var (
	flux = Schedule{BaseShift: 0.5, MaxShift: 1.15, BaseTokens: 256, MaxTokens: 4096}
	qwen = Schedule{BaseShift: 0.5, MaxShift: 0.9, BaseTokens: 256, MaxTokens: 8192}
)

// Value returns u, computed from a uniform number in [0, 1) or a standard normal one,
// depending on the density.
func (t Timesteps) Value(uniform, normal float32) float32 {
	switch t.Density {
	case LogitNormal:
		return sigmoid(float32(normal*float32(t.Std)) + float32(t.Mean))
	case Sigmoid:
		return sigmoid(normal * float32(t.Scale))
	case Mode:
		cos := float32(math.Cos(float64(math.Pi * uniform / 2)))
		return 1 - uniform - float32(float32(t.ModeScale)*(float32(cos*cos)-1+uniform))
	}
	return uniform
}

func sigmoid(x float32) float32 { return float32(1 / (1 + math.Exp(-float64(x)))) }

// Weighting selects the loss weight of a sample by its noise level.
type Weighting string

// Weightings (arXiv 2403.03206, section 3.1): 1, σ⁻², and 2/(π·(1 − 2σ + 2σ²)).
const (
	Equal     Weighting = "none"
	SigmaSqrt Weighting = "sigma_sqrt"
	CosMap    Weighting = "cosmap"
)

// ParseWeighting returns the weighting with the given name; "" is Equal. Errors: ErrSchedule.
func ParseWeighting(name string) (Weighting, error) {
	switch w := Weighting(name); w {
	case "":
		return Equal, nil
	case Equal, SigmaSqrt, CosMap:
		return w, nil
	}
	return "", fmt.Errorf("flow: %w: weighting: %s", ErrSchedule, suggest.Expected(name, []string{string(Equal), string(SigmaSqrt), string(CosMap)}))
}

// Weight returns the loss weight of a noise level.
func (w Weighting) Weight(sigma float32) float32 {
	switch w {
	case SigmaSqrt:
		return float32(math.Pow(float64(sigma), -2))
	case CosMap:
		bottom := 1 - float32(2*sigma) + float32(2*float32(sigma*sigma))
		return 2 / (math.Pi * bottom)
	}
	return 1
}
