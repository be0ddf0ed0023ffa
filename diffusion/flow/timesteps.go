package flow

import (
	"fmt"
	"math"

	"github.com/lorafuse/lorafuse/internal/suggest"
)

// Density says how often training sees which noise levels.
type Density string

// The densities. Uniform, LogitNormal and Mode are those of Stable Diffusion 3 (arXiv
// 2403.03206, section 3.1), whose u picks a level of the table; Sigmoid is logit-normal
// around 1/2 and the level itself, as kohya's trainers have it.
const (
	Uniform     Density = "none"
	LogitNormal Density = "logit_normal"
	Mode        Density = "mode"
	Sigmoid     Density = "sigmoid"
)

// Shift says how levels are moved towards noise once they are drawn.
type Shift string

// The shifts: by a number, or by the size of the picture as FLUX.1 and Qwen-Image do when
// they sample.
const (
	NoShift     Shift = ""
	StaticShift Shift = "shift"
	FluxShift   Shift = "flux_shift"
	QwenShift   Shift = "qwen_shift"
)

// Timesteps says how training draws its noise levels. The zero value is uniform.
type Timesteps struct {
	Density   Density
	Mean, Std float64 // of LogitNormal
	ModeScale float64 // of Mode
	Scale     float64 // of Sigmoid: the standard deviation before the sigmoid
	Shift     Shift
	By        float64 // of StaticShift
}

// Names are what NamedTimesteps takes.
var Names = []string{string(Uniform), "uniform", string(LogitNormal), string(Mode), string(Sigmoid), string(StaticShift), string(FluxShift), string(QwenShift)}

// NamedTimesteps gives the timesteps that trainers call by one name, with their defaults:
// one of the densities, or one of the shifts, which come with Sigmoid. Errors: ErrSchedule.
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

// At gives the level of a draw for a picture of so many tokens, and the timestep that the
// model is told with it.
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

// What FLUX.1 and Qwen-Image shift by.
var (
	flux = Schedule{BaseShift: 0.5, MaxShift: 1.15, BaseTokens: 256, MaxTokens: 4096}
	qwen = Schedule{BaseShift: 0.5, MaxShift: 0.9, BaseTokens: 256, MaxTokens: 8192}
)

// Value is u of a uniform number of [0, 1) and a standard normal one, whichever the density
// is made of.
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

// Weighting is the weight of a sample in the loss, by its noise level.
type Weighting string

// The weightings (arXiv 2403.03206, section 3.1): 1, σ⁻², and 2/(π·(1 − 2σ + 2σ²)).
const (
	Equal     Weighting = "none"
	SigmaSqrt Weighting = "sigma_sqrt"
	CosMap    Weighting = "cosmap"
)

// ParseWeighting gives the weighting of that name; "" is Equal. Errors: ErrSchedule.
func ParseWeighting(name string) (Weighting, error) {
	switch w := Weighting(name); w {
	case "":
		return Equal, nil
	case Equal, SigmaSqrt, CosMap:
		return w, nil
	}
	return "", fmt.Errorf("flow: %w: weighting: %s", ErrSchedule, suggest.Expected(name, []string{string(Equal), string(SigmaSqrt), string(CosMap)}))
}

// Weight is that of a level.
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
