package dit

import "github.com/lorafuse/lorafuse/internal/data"

// places makes each latent position a token.
var places = patches{1, 1, 1, true}

// Space implements [Transformer].
func (m *Flux2) Space() Space {
	return Space{Channels: m.Channels, Multiple: 1, Text: m.Text, Guidance: m.Guidance, Controls: true}
}

// layout returns l with one token per latent position.
func (m *Flux2) layout(l layout, s Sample) layout {
	l.grids = []grid{places.grid(s.Latent)}
	for _, c := range s.Controls {
		l.grids = append(l.grids, places.grid(c))
	}
	return l
}

// Bounds implements [Transformer].
func (m *Flux2) Bounds(samples int, s Sample) map[string]int {
	return m.layout(layoutOf(samples, s), s).bounds()
}

// Arrays implements [Transformer].
func (m *Flux2) Arrays(b *data.Batch, samples []Sample) error {
	l, err := m.Space().newLayout(samples)
	if err == nil {
		err = oneFrame(samples)
	}
	if err != nil {
		return err
	}
	l = m.layout(l, samples[0])
	b.Reset()
	l.setPictures(b, samples, places.pack)
	l.setText(b, samples, func(Prompt, int) bool { return true })
	setSinusoids(b, Time, samples, func(s Sample) []float32 { return sinusoid(s.Timestep/1000*1000, 1, m.TimeChannels) })
	if m.Guidance {
		setSinusoids(b, Guidance, samples, func(s Sample) []float32 { return sinusoid(s.Guidance*1000, 1, m.TimeChannels) })
	}
	pictures := m.positions(l)
	text := func(i int, at []int) { copy(at, []int{0, 0, 0, i}) }
	l.setRotary(b, rotary{m.Theta, m.Axes, angles64}, text, func(i int, at []int) { copy(at, pictures[i][:]) })
	return nil
}

// positions returns the positions of image tokens: 0, or 10, 20 … for controls, then the row,
// the column and 0. Text tokens use the fourth axis.
func (m *Flux2) positions(l layout) [][4]int {
	at := make([][4]int, l.image())
	l.eachToken(func(i, picture, _, row, column int) { at[i] = [4]int{10 * picture, row, column, 0} })
	return at
}

// Unpack implements [Transformer].
func (m *Flux2) Unpack(rows []float32, samples int, like Latent) ([][]float32, error) {
	return places.unpackAll(rows, samples, like)
}

var _ Transformer = (*Flux2)(nil)
