package flow

import "math"

// Step moves x along its velocity from level i to level i+1, in place.
func (l Levels) Step(x, velocity []float32, i int) {
	dt := l.Sigmas[i+1] - l.Sigmas[i]
	for j, v := range velocity {
		x[j] += float32(dt * v)
	}
}

// Guidance combines the velocities for the prompt and for the negative prompt
// (classifier-free guidance, Ho and Salimans 2022, arXiv 2207.12598).
type Guidance string

// Kinds of guidance, for velocity v of the prompt, u of the negative prompt, and scale s.
const (
	Extrapolate Guidance = "extrapolate" // u + s·(v − u): Kandinsky, FLUX.2 klein
	Rescale     Guidance = "rescale"     // the same, rescaled to the norm of v per token: Qwen-Image
	Beyond      Guidance = "beyond"      // v + s·(v − u): Z-Image
)

// None returns the scale that disables guidance.
func (g Guidance) None() float64 {
	if g == Beyond {
		return 0
	}
	return 1
}

// Asks reports whether a scale needs a negative prompt.
func (g Guidance) Asks(scale float64) bool {
	return scale > g.None()
}

// Combine computes the guided velocity of v and u in place in v. Both have rows of channels,
// one per token.
func (g Guidance) Combine(v, u []float32, scale float64, channels int) {
	s := float32(scale)
	switch g {
	case Beyond:
		for i, x := range v {
			v[i] = x + float32(s*(x-u[i]))
		}
	case Rescale:
		for at := 0; at+channels <= len(v); at += channels {
			rescale(v[at:at+channels], u[at:at+channels], s)
		}
	default:
		for i, x := range v {
			v[i] = u[i] + float32(s*(x-u[i]))
		}
	}
}

func rescale(v, u []float32, s float32) {
	before := Norm(v)
	for i, x := range v {
		v[i] = u[i] + float32(s*(x-u[i]))
	}
	after := Norm(v)
	if after == 0 {
		return
	}
	for i := range v {
		v[i] *= before / after
	}
}

// Shorten scales a velocity down to a maximum norm, in place.
func Shorten(v []float32, limit float32) {
	long := Norm(v)
	if long <= limit {
		return
	}
	for i := range v {
		v[i] *= limit / long
	}
}

// Norm returns the Euclidean norm of a vector.
func Norm(x []float32) float32 {
	sum := 0.0
	for _, v := range x {
		sum += float64(v) * float64(v)
	}
	return float32(math.Sqrt(sum))
}
