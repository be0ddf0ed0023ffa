package dit

// patch is the side of the squares of latent positions in a token of FLUX.1 and Qwen-Image.
// The positions of a channel are contiguous.
const patch = 2

var squares = patches{1, patch, patch, false}

// packed writes a latent [C, F, H, W] as tokens [F·H/2·W/2, 4·C].
func packed(dst []float32, l Latent) { squares.pack(dst, l) }

// unpack undoes packed for each sample.
func unpack(rows []float32, samples int, like Latent) ([][]float32, error) {
	return squares.unpackAll(rows, samples, like)
}

// size returns the number of values.
func (l Latent) size() int { return l.Channels * l.Frames * l.Height * l.Width }

// grid is the number of tokens along each axis of a latent.
type grid struct{ frames, height, width int }

// grid returns the grid of 2×2 patches of a latent.
func (l Latent) grid() grid { return squares.grid(l) }

// tokens returns the number of tokens.
func (g grid) tokens() int { return g.frames * g.height * g.width }
