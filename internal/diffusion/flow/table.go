package flow

// Table holds the noise levels of training, from noise to image: Sigmas, and the
// corresponding timestep inputs of the model.
type Table struct {
	Sigmas, Timesteps []float32
}

// Table returns the training levels n/n, …, 1/n for n = Levels, with the static shift unless
// s is Dynamic.
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

// At returns level ⌊n·u⌋ of n: noise for u = 0, nearly the image for u near 1. It clamps u to
// the table.
func (t Table) At(u float32) float32 {
	n := len(t.Sigmas)
	return t.Sigmas[max(0, min(n-1, int(u*float32(n))))]
}
