package dit

// Fold folds squares of side×side positions into channels: channel c·side² + dy·side + dx of
// the result is channel c at row dy and column dx of the square, as in FLUX.2. The sides of x
// must be multiples of side.
func (x Latent) Fold(side int) Latent {
	y := Latent{x.Channels * side * side, x.Frames, x.Height / side, x.Width / side, make([]float32, len(x.Values))}
	y.unfolding(side, func(folded, plain int) { y.Values[folded] = x.Values[plain] })
	return y
}

// Unfold undoes Fold.
func (x Latent) Unfold(side int) Latent {
	y := Latent{x.Channels / (side * side), x.Frames, x.Height * side, x.Width * side, make([]float32, len(x.Values))}
	x.unfolding(side, func(folded, plain int) { y.Values[plain] = x.Values[folded] })
	return y
}

// unfolding calls f with the index of each value in the folded latent and in the unfolded
// one.
func (x Latent) unfolding(side int, f func(folded, plain int)) {
	at := 0
	for c := range x.Channels {
		dy, dx := c%(side*side)/side, c%side
		for frame := range x.Frames {
			plane := (c/(side*side)*x.Frames + frame) * x.Height * side
			for row := range x.Height {
				line := (plane + row*side + dy) * x.Width * side
				for column := range x.Width {
					f(at, line+column*side+dx)
					at++
				}
			}
		}
	}
}
