package flow

import (
	"fmt"
	"maps"
	"math"
	"slices"

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

// staticShift is the name of the shift by a constant.
const staticShift = "shift"

// sizeShifts holds shifts that depend on the size of the image, by name. Models use them for
// inference.
var sizeShifts = map[string]*Schedule{
	"flux_shift": {BaseShift: 0.5, MaxShift: 1.15, BaseTokens: 256, MaxTokens: 4096},
	"qwen_shift": {BaseShift: 0.5, MaxShift: 0.9, BaseTokens: 256, MaxTokens: 8192},
}

// Timesteps configures the noise levels of training. The zero value is uniform.
type Timesteps struct {
	Density   Density
	Mean, Std float64 // of LogitNormal
	ModeScale float64 // of Mode
	Scale     float64 // of Sigmoid: the standard deviation before the sigmoid
	Shift     string  // the name of a shift towards noise; empty means none
	By        float64 // of the shift by a constant
}

// NamedTimesteps returns the settings for a name that trainers use, with their defaults: a
// density, or a shift combined with Sigmoid. Errors: ErrSchedule.
func NamedTimesteps(name string) (Timesteps, error) {
	t := Timesteps{Std: 1, ModeScale: 1.29, Scale: 1, By: 1}
	switch d := Density(name); {
	case name == "" || name == "uniform":
		t.Density = Uniform
	case d == Uniform || d == LogitNormal || d == Mode || d == Sigmoid:
		t.Density = d
	case name == staticShift || sizeShifts[name] != nil:
		t.Density, t.Shift = Sigmoid, name
	default:
		names := []string{string(Uniform), "uniform", string(LogitNormal), string(Mode), string(Sigmoid), staticShift}
		names = append(names, slices.Sorted(maps.Keys(sizeShifts))...)
		return t, fmt.Errorf("flow: %w: timesteps: %s", ErrSchedule, suggest.Expected(name, names))
	}
	return t, nil
}

// At returns the noise level for a draw and an image with the given number of tokens, and the
// model's timestep input.
func (t Timesteps) At(table Table, d Draw, tokens int) (sigma, timestep float32) {
	if sigma = t.Value(d.Uniform(), d.Normal()); t.Density != Sigmoid {
		sigma = table.At(sigma)
	}
	if s := sizeShifts[t.Shift]; s != nil {
		sigma = dynamic(sigma, math.Exp(s.Mu(tokens)))
	} else if t.Shift == staticShift {
		sigma = static(sigma, t.By)
	}
	return sigma, sigma * float32(len(table.Sigmas))
}

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
