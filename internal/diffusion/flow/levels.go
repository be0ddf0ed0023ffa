package flow

import "math"

// Mu returns the dynamic shift µ for an image with the given number of tokens. It is linear
// through (BaseTokens, BaseShift) and (MaxTokens, MaxShift).
func (s *Schedule) Mu(tokens int) float64 {
	m := (s.MaxShift - s.BaseShift) / float64(s.MaxTokens-s.BaseTokens)
	b := s.BaseShift - m*float64(s.BaseTokens)
	return float64(tokens)*m + b
}

// Levels holds the noise levels of a sampling run. Step i moves from Sigmas[i] to
// Sigmas[i+1], so there is one more sigma than steps; Timesteps[i] is the model's timestep
// input.
type Levels struct {
	Sigmas, Timesteps []float32
}

// Steps returns the number of steps.
func (l Levels) Steps() int { return len(l.Timesteps) }

// Sample returns the levels of a run of one or more steps, derived from 1 … 1/steps like in
// diffusers' pipelines. µ is used only if s is Dynamic.
func (s *Schedule) Sample(steps int, mu float64) Levels {
	return s.SampleFrom(linspace(1, 1/float64(steps), steps), mu)
}

// SampleFrom returns the levels of a run for custom levels before shifting, at least one.
func (s *Schedule) SampleFrom(from []float64, mu float64) Levels {
	sigmas := make([]float32, len(from))
	for i, v := range from {
		sigmas[i] = shifted(s, float32(v), mu)
	}
	if s.Terminal > 0 {
		stretch(sigmas, s.Terminal)
	}
	return levels(s, sigmas)
}

// SampleSingle is like Sample, but computes the levels before shifting in float32 (Z-Image).
func (s *Schedule) SampleSingle(steps int, mu float64) Levels {
	return s.SampleFrom(linspace32(steps), mu)
}

// SampleTable is like Sample, but starts from the range of the training levels (Kandinsky). A
// static shift therefore applies twice, as in diffusers.
func (s *Schedule) SampleTable(steps int, mu float64) Levels {
	table := s.Table()
	n := float64(s.Levels)
	wide := linspace(float64(table.Sigmas[0])*n, float64(table.Sigmas[len(table.Sigmas)-1])*n, steps)
	for i, t := range wide {
		wide[i] = shifted(s, t/n, mu)
	}
	if s.Terminal > 0 {
		stretch(wide, s.Terminal)
	}
	return levels(s, wide)
}

// levels applies the spacing to shifted levels and appends the final level.
func levels[T number](s *Schedule, sigmas []T) Levels {
	n := len(sigmas)
	wide := make([]float64, n)
	for i, t := range sigmas {
		wide[i] = float64(t)
	}
	first, last := wide[0], wide[n-1]
	switch s.Spacing {
	case Karras:
		const rho = 7
		low, high := math.Pow(last, 1.0/rho), math.Pow(first, 1.0/rho)
		for i, r := range linspace(0, 1, n) {
			wide[i] = math.Pow(high+float64(r*(low-high)), rho)
		}
	case Exponential:
		for i, l := range linspace(math.Log(first), math.Log(last), n) {
			wide[i] = math.Exp(l)
		}
	case Beta:
		for i, r := range linspace(0, 1, n) {
			wide[i] = last + float64(betaQuantile(1-r)*(first-last))
		}
	case Even:
	}
	l := Levels{Sigmas: make([]float32, n+1), Timesteps: make([]float32, n)}
	for i, v := range wide {
		l.Sigmas[i] = float32(v)
		if s.Inverted {
			l.Sigmas[i] = 1 - l.Sigmas[i]
		}
		l.Timesteps[i] = l.Sigmas[i] * float32(s.Levels)
	}
	if s.Inverted {
		l.Sigmas[n] = 1
	}
	return l
}

// number is the precision in which levels are computed. Products are converted explicitly
// before an addition; otherwise some machines would fuse the operations and not round them.
type number interface{ float32 | float64 }

// shifted shifts a level towards noise.
func shifted[T number](s *Schedule, t T, mu float64) T {
	switch {
	case !s.Dynamic:
		return static(t, s.Shift)
	case s.Linear:
		return dynamic(t, mu)
	}
	return dynamic(t, math.Exp(mu))
}

// static returns s·σ/(1 + (s − 1)·σ).
func static[T number](t T, shift float64) T {
	return T(T(shift)*t) / (1 + T(T(shift-1)*t))
}

// dynamic returns s/(s + 1/σ − 1), which equals static in exact arithmetic.
func dynamic[T number](t T, shift float64) T {
	return T(shift) / (T(shift) + (1/t - 1))
}

// stretch rescales the distances of levels from 1 so that the last level is terminal.
func stretch[T number](sigmas []T, terminal float64) {
	scale := (1 - sigmas[len(sigmas)-1]) / T(1-terminal)
	if scale == 0 { // a single step, which begins at 1
		return
	}
	for i, t := range sigmas {
		sigmas[i] = 1 - (1-t)/scale
	}
}

// linspace returns n evenly spaced numbers from first to last.
func linspace(first, last float64, n int) []float64 {
	x := make([]float64, n)
	step := (last - first) / float64(max(1, n-1))
	for i := range x {
		x[i] = float64(float64(i)*step) + first
	}
	if n > 1 {
		x[n-1] = last
	}
	return x
}

// linspace32 returns 1 … 1/n like torch.linspace: in float32, from both ends to the middle,
// with fused multiply and add.
func linspace32(n int) []float64 {
	x := make([]float64, n)
	last := 1 / float32(n)
	step := (last - 1) / float32(max(1, n-1))
	for i := range x {
		v := 1 + float64(step)*float64(i)
		if i >= n/2 {
			v = float64(last) - float64(step)*float64(n-1-i)
		}
		x[i] = float64(float32(v))
	}
	return x
}
