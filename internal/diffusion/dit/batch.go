package dit

import (
	"github.com/lorafuse/lorafuse/internal/data"
	"github.com/lorafuse/lorafuse/internal/nn"
)

// packing writes the tokens of a latent to dst.
type packing func(dst []float32, l Latent)

// setPictures sets the image inputs of a batch, and the training targets if any sample has
// one. Samples without a target get weight zero.
func (l layout) setPictures(b *data.Batch, samples []Sample, pack packing) {
	channels := samples[0].Latent.size() / l.predicted()
	all := make([]float32, 0, l.samples*l.image()*channels)
	predicted := make([]int32, 0, l.samples*l.predicted())
	learns := false
	for i, s := range samples {
		for _, p := range append([]Latent{s.Latent}, s.Controls...) {
			at := len(all)
			all = all[:at+p.size()]
			pack(all[at:], p)
		}
		for t := range l.predicted() {
			predicted = append(predicted, int32(i*l.image()+t))
		}
		learns = learns || s.Target != nil
	}
	b.SetFloats(Latents, all)
	b.SetInts(Predicted, predicted)
	if learns {
		l.setTargets(b, samples, pack)
	}
}

// setTargets sets the targets and weights of a batch. It divides the weight of a sample by
// the number of elements, so that a weighted sum of squares is a weighted mean.
func (l layout) setTargets(b *data.Batch, samples []Sample, pack packing) {
	n := samples[0].Latent.size()
	targets, weights := make([]float32, l.samples*n), make([]float32, l.samples)
	for i, s := range samples {
		if s.Target == nil {
			continue
		}
		target := s.Latent
		target.Values = s.Target
		pack(targets[i*n:(i+1)*n], target)
		weights[i] = s.Weight / float32(n)
		if s.Weight != 0 {
			b.LossTokens++
		}
	}
	b.SetFloats(Target, targets)
	b.SetFloats(Weights, weights)
}

// setText sets the text inputs of a batch and the rows of all tokens. seen reports whether a
// text token is attended to. All others are padding, as are the missing tokens of shorter
// texts.
func (l layout) setText(b *data.Batch, samples []Sample, seen func(p Prompt, token int) bool) {
	features := samples[0].Prompt.Features
	text := make([]float32, l.samples*l.text*features)
	rows := make([]int32, l.samples*l.text)
	images := make([]int32, 0, l.samples*l.image())
	lo, hi := make([]int32, l.samples*l.joint()), make([]int32, l.samples*l.joint())
	for i, s := range samples {
		copy(text[i*l.text*features:], s.Prompt.Values)
		from, end := int32(i*l.joint()), int32((i+1)*l.joint())
		real := 0
		for t := range s.Prompt.tokens() {
			if seen(s.Prompt, t) {
				real++
			}
		}
		padding, first := from, from+int32(l.text-real)
		at := first
		for t := range l.text {
			to := &padding
			if t < s.Prompt.tokens() && seen(s.Prompt, t) {
				to = &at
			}
			rows[i*l.text+t] = *to
			*to++
		}
		for row := at; row < end; row++ {
			images = append(images, row)
		}
		for row := from; row < end; row++ {
			if lo[row], hi[row] = first, end; row < first {
				lo[row], hi[row] = from, from // attends to nothing
			}
		}
	}
	b.SetFloats(Text, text)
	b.SetInts(TextRows, rows)
	b.SetInts(ImageRows, images)
	b.SetInts(nn.KeyStart, lo)
	b.SetInts(nn.KeyEnd, hi)
}

// setPooled sets the pooled text embeddings of a batch.
func (l layout) setPooled(b *data.Batch, samples []Sample) {
	var all []float32
	for _, s := range samples {
		all = append(all, s.Prompt.Pooled...)
	}
	b.SetFloats(Pooled, all)
}

// setSinusoids sets an input with one vector per sample.
func setSinusoids(b *data.Batch, name string, samples []Sample, of func(s Sample) []float32) {
	var all []float32
	for _, s := range samples {
		all = append(all, of(s)...)
	}
	b.SetFloats(name, all)
}

// setRotary sets the rotary table for text and image tokens. setText must have set their
// rows. textAt and imageAt write the position of token i.
func (l layout) setRotary(b *data.Batch, r rotary, textAt, imageAt func(i int, position []int)) {
	size := r.size()
	all := make([]float32, l.samples*l.joint()*size)
	for _, part := range []struct {
		rows   string
		tokens int
		at     func(int, []int)
	}{{TextRows, l.text, textAt}, {ImageRows, l.image(), imageAt}} {
		table := r.table(part.tokens, part.at)
		for i, row := range ints(b, part.rows) {
			from := i % part.tokens * size
			copy(all[int(row)*size:int(row+1)*size], table[from:from+size])
		}
	}
	b.SetFloats(Rotary, all)
}

// ints returns the integer array called name.
func ints(b *data.Batch, name string) []int32 {
	for _, a := range b.Arrays() {
		if a.Name == name {
			return a.Ints
		}
	}
	return nil
}

// eachToken calls f for each image token with its image, frame, row and column.
func (l layout) eachToken(f func(i, picture, frame, row, column int)) {
	i := 0
	for p, g := range l.grids {
		for frame := range g.frames {
			for row := range g.height {
				for column := range g.width {
					f(i, p, frame, row, column)
					i++
				}
			}
		}
	}
}
