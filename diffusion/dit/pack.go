package dit

// patch is the side of the squares of places that a token of FLUX.1 and Qwen-Image has,
// those of a channel side by side.
const patch = 2

var squares = patches{1, patch, patch, false}

// packed writes a latent [C, F, H, W] as tokens [F·H/2·W/2, 4·C].
func packed(dst []float32, l Latent) { squares.pack(dst, l) }

// unpack undoes packed for each sample.
func unpack(rows []float32, samples int, like Latent) ([][]float32, error) {
	return squares.unpackAll(rows, samples, like)
}

// size is the number of values.
func (l Latent) size() int { return l.Channels * l.Frames * l.Height * l.Width }

// grid is how many tokens a picture has.
type grid struct{ frames, height, width int }

// grid is that of a latent of squares.
func (l Latent) grid() grid { return squares.grid(l) }

// tokens is how many there are.
func (g grid) tokens() int { return g.frames * g.height * g.width }
