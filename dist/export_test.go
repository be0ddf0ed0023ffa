package dist

// SetStretch makes parts longer than n arrive in several exchanges.
func (s *Sum) SetStretch(n int) {
	s.step = n
	s.run = make([]float32, n*s.world.Size())
}
