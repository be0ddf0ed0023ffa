package flow

import "math"

// Step moves x, in place, along its velocity from level number i to the next.
func (l Levels) Step(x, velocity []float32, i int) {
	dt := l.Sigmas[i+1] - l.Sigmas[i]
	for j, v := range velocity {
		x[j] += float32(dt * v)
	}
}

// Guidance says how the velocities with a prompt and with a negative one become one
// (classifier-free guidance, Ho and Salimans 2022, arXiv 2207.12598).
type Guidance string

// The kinds of guidance, for the velocity v with the prompt, u with the negative one, and
// the scale s.
const (
	Extrapolate Guidance = "extrapolate" // u + s·(v − u): Kandinsky, FLUX.2 klein
	Rescale     Guidance = "rescale"     // the same, each token as long as in v: Qwen-Image
	Beyond      Guidance = "beyond"      // v + s·(v − u): Z-Image
)

// None is the scale that asks for no guidance.
func (g Guidance) None() float64 {
	if g == Beyond {
		return 0
	}
	return 1
}

// Asks reports whether a scale asks for a negative prompt at all.
func (g Guidance) Asks(scale float64) bool {
	return scale > g.None()
}

// Combine makes the guided velocity of v, in place, and u: rows of channels, one for each
// token.
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

// Shorten has a velocity be no longer than a limit, in place.
func Shorten(v []float32, limit float32) {
	long := Norm(v)
	if long <= limit {
		return
	}
	for i := range v {
		v[i] *= limit / long
	}
}

// Norm is the length of a vector.
func Norm(x []float32) float32 {
	sum := 0.0
	for _, v := range x {
		sum += float64(v) * float64(v)
	}
	return float32(math.Sqrt(sum))
}
