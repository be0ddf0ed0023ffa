package dit

import "math"

// precision selects the rounding of angles in a rotary table.
type precision uint8

const (
	angles64     precision = iota // f64
	angles32                      // f32, including the frequencies
	angles64to32                  // f64, then rounded to f32
)

// rotary is a rotary embedding with several axes. Axis a has dims[a]/2 pairs of a head, and
// pair j is rotated by position·θ^(−2j/dims[a]).
type rotary struct {
	theta     float64
	dims      []int
	precision precision
}

// size returns the head size.
func (r rotary) size() (n int) {
	for _, d := range r.dims {
		n += d
	}
	return n
}

// table returns the rows of a rotary table: the cosines of all pairs, then the sines. at
// writes the position of row i on each axis.
func (r rotary) table(rows int, at func(i int, position []int)) []float32 {
	var axes []*turns
	for _, fs := range r.frequencies() {
		axes = append(axes, newTurns(len(fs), func(position, pair int) float64 { return r.angle(position, fs[pair]) }))
	}
	size := r.size()
	out, position := make([]float32, rows*size), make([]int, len(r.dims))
	for i := range rows {
		at(i, position)
		pair := 0
		for axis, t := range axes {
			pair += t.write(out[i*size:(i+1)*size], pair, position[axis])
		}
	}
	return out
}

// turns caches the cosines and sines of an axis by position, because many tokens share a row
// or a column.
type turns struct {
	pairs int
	angle func(position, pair int) float64
	known map[int][]float32 // by position: cosines, then sines
}

func newTurns(pairs int, angle func(position, pair int) float64) *turns {
	return &turns{pairs, angle, map[int][]float32{}}
}

// write writes the entries of a position to a table row, starting at pair first, and returns
// the number of pairs.
func (t *turns) write(row []float32, first, position int) int {
	x, ok := t.known[position]
	if !ok {
		x = make([]float32, 2*t.pairs)
		for pair := range t.pairs {
			sin, cos := math.Sincos(t.angle(position, pair))
			x[pair], x[t.pairs+pair] = float32(cos), float32(sin)
		}
		t.known[position] = x
	}
	copy(row[first:], x[:t.pairs])
	copy(row[len(row)/2+first:], x[t.pairs:])
	return t.pairs
}

// angle returns position·f, rounded.
func (r rotary) angle(position int, f float64) float64 {
	switch r.precision {
	case angles32:
		return float64(float32(position) * float32(f))
	case angles64to32:
		return float64(float32(float64(position) * f))
	}
	return float64(position) * f
}

// frequencies returns the frequencies of the pairs of each axis.
func (r rotary) frequencies() [][]float64 {
	all := make([][]float64, len(r.dims))
	for axis, dim := range r.dims {
		for j := 0; j < dim; j += 2 {
			if r.precision == angles32 {
				power := float32(math.Pow(r.theta, float64(float32(j)/float32(dim))))
				all[axis] = append(all[axis], float64(1/power))
				continue
			}
			all[axis] = append(all[axis], 1/math.Pow(r.theta, float64(j)/float64(dim)))
		}
	}
	return all
}
