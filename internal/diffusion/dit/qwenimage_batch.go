package dit

import (
	"github.com/lorafuse/lorafuse/internal/data"
)

// ConditionRows is an input of Qwen-Image with controls that are modulated as at timestep 0:
// i32 [samples·image tokens]. It holds the index of the sample, or the number of samples for
// tokens of controls.
const ConditionRows = "condition rows"

// Space implements Transformer.
func (m *QwenImage) Space() Space {
	return Space{Channels: m.Channels / (patch * patch), Multiple: patch, Text: m.Text, Controls: true}
}

// Bounds implements Transformer.
func (m *QwenImage) Bounds(samples int, s Sample) map[string]int {
	return layoutOf(samples, s).bounds()
}

// Arrays implements Transformer.
func (m *QwenImage) Arrays(b *data.Batch, samples []Sample) error {
	l, err := m.Space().newLayout(samples)
	if err == nil && !m.Layered {
		err = oneFrame(samples)
	}
	if err != nil {
		return err
	}
	b.Reset()
	l.setPictures(b, samples, packed)
	l.setText(b, samples, Prompt.sees)
	setSinusoids(b, Time, samples, func(s Sample) []float32 { return sinusoid(s.Timestep/1000, 1000, timeChannels) })
	if m.ClearControls {
		b.SetInts(ConditionRows, m.conditionRows(l))
	}
	positions, first := m.positions(l)
	text := func(i int, position []int) {
		for axis := range position {
			position[axis] = first + i
		}
	}
	l.setRotary(b, rotary{10000, m.Axes, angles32}, text, func(i int, position []int) { copy(position, positions[i][:]) })
	return nil
}

// positions returns the positions of image tokens, with centered rows and columns, and the
// position of the first text token on all axes. Text follows the largest image position. The
// first axis numbers images; each frame of a layered image counts as one, and the last image
// then has -1.
func (m *QwenImage) positions(l layout) (all [][3]int, first int) {
	pictures := 0 // each frame is an image if images are layered
	for _, g := range l.grids {
		first = max(first, g.height/2, g.width/2)
		pictures += g.frames
	}
	all = make([][3]int, l.image())
	l.eachToken(func(i, picture, frame, row, column int) {
		g := l.grids[picture]
		at := picture + frame
		if m.Layered {
			for _, before := range l.grids[:picture] {
				at += before.frames - 1
			}
			if at == pictures-1 {
				at = -1
			}
		}
		all[i] = [3]int{at, row - (g.height - g.height/2), column - (g.width - g.width/2)}
	})
	if m.Layered {
		first = max(first, pictures-1)
	}
	return all, first
}

// conditionRows returns the values of ConditionRows. If the image is layered, all layers
// except the first count as controls, as in diffusers.
func (m *QwenImage) conditionRows(l layout) []int32 {
	one := l.grids[0].height * l.grids[0].width
	rows := make([]int32, 0, l.samples*l.image())
	for i := range l.samples {
		for t := range l.image() {
			if t < one {
				rows = append(rows, int32(i))
			} else {
				rows = append(rows, int32(l.samples))
			}
		}
	}
	return rows
}

// Unpack implements Transformer.
func (m *QwenImage) Unpack(rows []float32, samples int, like Latent) ([][]float32, error) {
	return unpack(rows, samples, like)
}

var _ Transformer = (*QwenImage)(nil)
