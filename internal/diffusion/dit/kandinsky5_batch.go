package dit

import (
	"fmt"
	"math"

	"github.com/lorafuse/lorafuse/internal/data"
)

// Sizes of diffusers' position tables.
const (
	kandinskyPlaces = 128  // frames, rows and columns
	kandinskyText   = 1024 // text tokens
)

// Space implements [Transformer].
func (m *Kandinsky5) Space() Space {
	return Space{Channels: m.Channels, Multiple: lcm(m.Patch[1], m.Patch[2]), Text: m.Text, Pooled: m.Pooled, Controls: m.Conditioned, Unshifted: true}
}

// lcm returns the least common multiple of a and b.
func lcm(a, b int) int {
	n := a
	for n%b != 0 {
		n += a
	}
	return n
}

// patches returns the layout of tokens: channels are contiguous in the input (given), and
// separate in the output.
func (m *Kandinsky5) patches(given bool) patches {
	return patches{m.Patch[0], m.Patch[1], m.Patch[2], given}
}

// Bounds implements [Transformer].
func (m *Kandinsky5) Bounds(samples int, s Sample) map[string]int {
	s.Controls = nil // channels, not tokens
	return m.patches(true).layout(samples, s).bounds()
}

// Arrays implements [Transformer]. A transformer with visual_cond takes at most one control.
// Without an extra channel the control is valid everywhere; otherwise its last channel, which
// a latent does not have, is the mask.
func (m *Kandinsky5) Arrays(b *data.Batch, samples []Sample) error {
	given := make([]Sample, len(samples))
	for i, s := range samples {
		given[i] = s
		given[i].Controls = nil // channels, not tokens
	}
	space := m.Space()
	space.Multiple = 1
	l, err := space.newLayout(m.patches(true), given)
	if err != nil {
		return err
	}
	for i, s := range samples {
		if err := m.check(l, s); err != nil {
			return fmt.Errorf("dit: %w: sample %d: %w", ErrSample, i, err)
		}
	}
	b.Reset()
	l.setPictures(b, given, m.patches(false).pack) // targets are packed like the output
	m.setLatents(b, samples)
	l.setPooled(b, samples)
	setSinusoids(b, Time, samples, func(s Sample) []float32 { return sinusoid(s.Timestep, 1, m.Width) })
	m.setTokens(b, l, samples)
	return nil
}

// check validates a sample that has the layout of the batch.
func (m *Kandinsky5) check(l layout, s Sample) error {
	g := l.grids[0]
	switch {
	case !m.patches(true).fits(s.Latent):
		return fmt.Errorf("latent: found %d frames of %d×%d, expected multiples of %d and %d×%d", s.Latent.Frames, s.Latent.Height, s.Latent.Width, m.Patch[0], m.Patch[1], m.Patch[2])
	case max(g.frames, g.height, g.width) > kandinskyPlaces:
		return fmt.Errorf("latent: found %d×%d×%d tokens, expected %d at most on each axis", g.frames, g.height, g.width, kandinskyPlaces)
	case s.Prompt.seen() < 1 || s.Prompt.seen() > kandinskyText:
		return fmt.Errorf("text: found %d tokens that are seen, expected 1 to %d", s.Prompt.seen(), kandinskyText)
	case len(s.Controls) > 0 && !m.Conditioned:
		return fmt.Errorf("found %d controls, expected none: visual_cond is false", len(s.Controls))
	case len(s.Controls) > 1:
		return fmt.Errorf("found %d controls, expected one at most", len(s.Controls))
	}
	for axis, by := range s.Stretch {
		if by != 0 && !(by > 0 && !math.IsInf(float64(by), 0)) {
			return fmt.Errorf("stretch: found %v on axis %d, expected more than 0", by, axis)
		}
	}
	for _, c := range s.Controls {
		if c.Frames != s.Latent.Frames || c.Height != s.Latent.Height || c.Width != s.Latent.Width {
			return fmt.Errorf("control: found %d frames of %d×%d, expected %d of %d×%d as the latent has", c.Frames, c.Height, c.Width, s.Latent.Frames, s.Latent.Height, s.Latent.Width)
		}
		if (c.Channels != m.Channels && c.Channels != m.Channels+1) || len(c.Values) != c.size() {
			return fmt.Errorf("control: found %d channels of %d values in all, expected %d, or %d with a mask", c.Channels, len(c.Values), m.Channels, m.Channels+1)
		}
	}
	return nil
}

// setLatents sets the latents of a batch together with their controls.
func (m *Kandinsky5) setLatents(b *data.Batch, samples []Sample) {
	var latents []float32
	for _, s := range samples {
		all := s.Latent
		if m.Conditioned {
			all = m.conditioned(s)
		}
		at := len(latents)
		latents = append(latents, make([]float32, all.size())...)
		m.patches(true).pack(latents[at:], all)
	}
	b.SetFloats(Latents, latents)
}

// conditioned concatenates the latent, its control and the mask along channels. Without a
// control these are zeros.
func (m *Kandinsky5) conditioned(s Sample) Latent {
	all := s.Latent
	all.Channels = m.given()
	all.Values = make([]float32, all.size())
	rest := all.Values[copy(all.Values, s.Latent.Values):]
	if len(s.Controls) > 0 {
		mask := rest[copy(rest, s.Controls[0].Values):]
		for i := range mask {
			mask[i] = 1
		}
	}
	return all
}

// setTokens sets the texts of a batch, real tokens first, the rows of all tokens and the
// bounds of their keys.
func (m *Kandinsky5) setTokens(b *data.Batch, l layout, samples []Sample) {
	text := make([]float32, l.samples*l.text*m.Text)
	var seesText, sees intervals
	from, to := make([]int32, 0, l.samples*l.image()), make([]int32, 0, l.samples*l.image())
	for i, s := range samples {
		first := i * l.text
		at := first
		for t := range s.Prompt.tokens() {
			if s.Prompt.sees(t) {
				copy(text[at*m.Text:(at+1)*m.Text], s.Prompt.Values[t*m.Text:])
				at++
			}
		}
		seesText.add(l.text, at-first)
		sees.add(l.image(), l.image())
		for range l.image() {
			from, to = append(from, int32(first)), append(to, int32(at))
		}
	}
	b.SetFloats(Text, text)
	seesText.set(b, textLo, textHi)
	sees.set(b, imageLo, imageHi)
	b.SetInts(imageText, from)
	b.SetInts(imageTo, to)
	b.SetFloats(textRotary, m.textTable(l))
	var table []float32
	for _, s := range samples {
		table = append(table, m.imageTable(l.grids[0], s.Stretch)...)
	}
	b.SetFloats(Rotary, table)
}

// textTable returns the rotary table of text, which has one axis.
func (m *Kandinsky5) textTable(l layout) []float32 {
	size := m.headDim()
	t := kandinskyTurns(size, 1)
	table := make([]float32, l.samples*l.text*size)
	for row := range l.samples * l.text {
		t.write(table[row*size:(row+1)*size], 0, row%l.text)
	}
	return table
}

// imageTable returns the rotary table of an image. It divides the angles of each axis by
// stretch.
func (m *Kandinsky5) imageTable(g grid, stretch [3]float32) []float32 {
	var axes [3]*turns
	for axis, d := range m.Axes {
		by := stretch[axis]
		if by == 0 {
			by = 1
		}
		axes[axis] = kandinskyTurns(d, by)
	}
	size := m.headDim()
	table := make([]float32, g.tokens()*size)
	for row := range g.tokens() {
		pair := 0
		for axis, at := range [3]int{row / (g.height * g.width), row / g.width % g.height, row % g.width} {
			pair += axes[axis].write(table[row*size:(row+1)*size], pair, at)
		}
	}
	return table
}

// kandinskyTurns returns the rotary table of an axis of size elements per head, with its
// angles divided by by. It uses the frequencies of a sinusoid.
func kandinskyTurns(size int, by float32) *turns {
	return newTurns(size/2, func(position, pair int) float64 {
		return float64(float32(position) * frequency(pair, size/2) / by)
	})
}

// Unpack implements [Transformer].
func (m *Kandinsky5) Unpack(rows []float32, samples int, like Latent) ([][]float32, error) {
	return m.patches(false).unpackAll(rows, samples, like)
}

var _ Transformer = (*Kandinsky5)(nil)
