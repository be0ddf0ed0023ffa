package dit

import (
	"github.com/lorafuse/lorafuse/data"
	"github.com/lorafuse/lorafuse/nn"
)

// packing writes the tokens of a latent.
type packing func(dst []float32, l Latent)

// setPictures gives a batch what samples have of pictures, and what is to be learned of
// them where one has a target. A sample without has no weight.
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

// setTargets gives a batch what is to be learned. The weight of a sample is divided by
// the number of elements, so that a sum of squares is their mean.
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

// setText gives a batch the texts of samples, and the rows of all tokens: seen tells which
// tokens of a text are seen; the others are padding, and so is what shorter texts lack.
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
				lo[row], hi[row] = from, from // sees nothing
			}
		}
	}
	b.SetFloats(Text, text)
	b.SetInts(TextRows, rows)
	b.SetInts(ImageRows, images)
	b.SetInts(nn.Lo, lo)
	b.SetInts(nn.Hi, hi)
}

// setPooled gives a batch the vectors of the whole texts.
func (l layout) setPooled(b *data.Batch, samples []Sample) {
	var all []float32
	for _, s := range samples {
		all = append(all, s.Prompt.Pooled...)
	}
	b.SetFloats(Pooled, all)
}

// setSinusoids gives a batch an array of a vector for each sample.
func setSinusoids(b *data.Batch, name string, samples []Sample, of func(s Sample) []float32) {
	var all []float32
	for _, s := range samples {
		all = append(all, of(s)...)
	}
	b.SetFloats(name, all)
}

// setRotary gives a batch its rotary table, of those of a text and of pictures, once
// setText has given it the rows of tokens. at gives the position of token i of either.
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

// ints is an array of a batch.
func ints(b *data.Batch, name string) []int32 {
	for _, a := range b.Arrays() {
		if a.Name == name {
			return a.Ints
		}
	}
	return nil
}

// eachToken calls f with the place of each token of pictures: which picture it is of, and
// where in that.
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
