package flow

// Table has the noise levels of training, from noise to picture: Sigmas, and the timesteps
// that the model is told with them.
type Table struct {
	Sigmas, Timesteps []float32
}

// Table gives the levels n/n, …, 1/n of training, for n = Levels, with the static shift
// unless s is Dynamic.
func (s *Schedule) Table() Table {
	n := s.Levels
	t := Table{Sigmas: make([]float32, n), Timesteps: make([]float32, n)}
	for i := range n {
		sigma := float32(n-i) / float32(n)
		if !s.Dynamic {
			sigma = static(sigma, s.Shift)
		}
		t.Sigmas[i], t.Timesteps[i] = sigma, sigma*float32(n)
	}
	return t
}

// At is the level number ⌊n·u⌋ of n: noise for u = 0, nearly the picture for u near 1. What
// lies outside of the table is its end.
func (t Table) At(u float32) float32 {
	n := len(t.Sigmas)
	return t.Sigmas[max(0, min(n-1, int(u*float32(n))))]
}
