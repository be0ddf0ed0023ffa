package dit

// patch is the side of the square of places of a latent that a token has.
const patch = 2

// packed writes a latent [C, F, H, W] as tokens [F·H/2·W/2, 4·C]: frames, then rows, then
// columns, of each token the places of channel c at c·4 + dy·2 + dx.
func packed(dst []float32, l Latent) {
	l.places(func(token, value int) { dst[token] = l.Values[value] })
}

// unpacked undoes packed: l says the size.
func unpacked(tokens []float32, l Latent) []float32 {
	out := make([]float32, l.size())
	l.places(func(token, value int) { out[value] = tokens[token] })
	return out
}

// places calls f with the place of each value among tokens, and in the latent.
func (l Latent) places(f func(token, value int)) {
	at := 0
	for frame := range l.Frames {
		for y := 0; y < l.Height; y += patch {
			for x := 0; x < l.Width; x += patch {
				for c := range l.Channels {
					for d := range patch * patch {
						row := (c*l.Frames+frame)*l.Height + y + d/patch
						f(at, row*l.Width+x+d%patch)
						at++
					}
				}
			}
		}
	}
}

// size is the number of values.
func (l Latent) size() int { return l.Channels * l.Frames * l.Height * l.Width }

// grid is how many tokens a picture has.
type grid struct{ frames, height, width int }

// grid is that of a latent of which a token has patch×patch places.
func (l Latent) grid() grid { return grid{l.Frames, l.Height / patch, l.Width / patch} }

// tokens is how many there are.
func (g grid) tokens() int { return g.frames * g.height * g.width }
