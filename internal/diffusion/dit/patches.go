package dit

// patch is the side of the tokens of squares.
const patch = 2

// Layouts of tokens that several architectures use: squares of latent positions with the
// positions of a channel contiguous, and single positions.
var (
	squares = patches{1, patch, patch, false}
	places  = patches{1, 1, 1, true}
)

// size returns the number of values.
func (l Latent) size() int { return l.Channels * l.Frames * l.Height * l.Width }

// grid is the number of tokens along each axis of a latent.
type grid struct{ frames, height, width int }

// tokens returns the number of tokens.
func (g grid) tokens() int { return g.frames * g.height * g.width }

// patches is the layout of a token: the number of frames, rows and columns that it covers. If
// last is set, the channels of a position are contiguous; otherwise the positions of a
// channel are.
type patches struct {
	frames, height, width int
	last                  bool
}

// grid returns the grid of tokens of a latent.
func (p patches) grid(l Latent) grid {
	return grid{l.Frames / p.frames, l.Height / p.height, l.Width / p.width}
}

// fits reports whether the sides of a latent are multiples of the patch.
func (p patches) fits(l Latent) bool {
	return l.Frames%p.frames == 0 && l.Height%p.height == 0 && l.Width%p.width == 0
}

// size returns the number of values per token.
func (p patches) size(channels int) int { return p.frames * p.height * p.width * channels }

// pack writes the values of a latent token by token, in order of frames, rows and columns.
func (p patches) pack(dst []float32, l Latent) {
	p.each(l, func(packed, value int) { dst[packed] = l.Values[value] })
}

// unpack is the inverse of pack. like has the size of the result.
func (p patches) unpack(tokens []float32, like Latent) []float32 {
	out := make([]float32, like.size())
	p.each(like, func(packed, value int) { out[value] = tokens[packed] })
	return out
}

// each calls f with the index of each value among the tokens and in the latent.
func (p patches) each(l Latent, f func(packed, value int)) {
	g, inside, at := p.grid(l), p.size(1), 0
	for frame := range g.frames {
		for row := range g.height {
			for column := range g.width {
				for i := range inside {
					y, x := row*p.height+i/p.width%p.height, column*p.width+i%p.width
					z := frame*p.frames + i/(p.height*p.width)
					for c := range l.Channels {
						packed := at + c*inside + i
						if p.last {
							packed = at + i*l.Channels + c
						}
						f(packed, ((c*l.Frames+z)*l.Height+y)*l.Width+x)
					}
				}
				at += inside * l.Channels
			}
		}
	}
}

// unpackAll returns the latent of each sample. Errors: ErrSample.
func (p patches) unpackAll(rows []float32, samples int, like Latent) ([][]float32, error) {
	n := like.size()
	if len(rows) != samples*n || !p.fits(like) {
		return nil, wrongSize(len(rows), samples*n)
	}
	out := make([][]float32, samples)
	for i := range out {
		out[i] = p.unpack(rows[i*n:(i+1)*n], like)
	}
	return out, nil
}
