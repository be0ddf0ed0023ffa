package dit

import (
	"fmt"

	"github.com/lorafuse/lorafuse/internal/data"
	"github.com/lorafuse/lorafuse/internal/nn"
)

// Space implements [Transformer].
func (z *ZImage) Space() Space {
	return Space{Channels: z.Channels, Multiple: z.Patch, Text: z.Text}
}

// patches returns the layout of a token.
func (z *ZImage) patches() patches { return patches{z.FramePatch, z.Patch, z.Patch, true} }

// zImageLayout holds the numbers of tokens of a batch. filledImage and filledText count the
// tokens of a sample's image and of the longest text, including learned tokens.
type zImageLayout struct {
	layout
	filledImage, filledText int
}

func newZImageLayout(l layout) zImageLayout {
	return zImageLayout{l, zImageFilled(l.predicted()), zImageFilled(l.text)}
}

// zImageFilled returns the number of tokens after padding with learned tokens.
func zImageFilled(tokens int) int {
	return (tokens + zImageMultiple - 1) / zImageMultiple * zImageMultiple
}

// tokens returns the number of rows of a sample among all tokens.
func (l zImageLayout) tokens() int { return l.filledImage + l.filledText }

// Bounds implements [Transformer].
func (z *ZImage) Bounds(samples int, s Sample) map[string]int {
	l := newZImageLayout(z.patches().layout(samples, s))
	bounds := l.bounds()
	bounds[filledImage], bounds[filledText], bounds[nn.Tokens] = l.filledImage, l.filledText, l.tokens()
	return bounds
}

// Arrays implements [Transformer].
func (z *ZImage) Arrays(b *data.Batch, samples []Sample) error {
	all, err := z.Space().newLayout(z.patches(), samples)
	if err != nil {
		return err
	}
	l := newZImageLayout(all)
	if err := z.checkPlaces(l, samples); err != nil {
		return err
	}
	b.Reset()
	l.setPictures(b, samples, z.patches().pack)
	setSinusoids(b, Time, samples, func(s Sample) []float32 {
		return sinusoid((1000-s.Timestep)/1000*float32(z.TimeScale), 1, timeChannels)
	})
	z.setTokens(b, l, samples)
	return nil
}

// checkPlaces returns an error if the patches do not divide a latent or if positions exceed
// the rotary table.
func (z *ZImage) checkPlaces(l zImageLayout, samples []Sample) error {
	if !z.patches().fits(samples[0].Latent) {
		return fmt.Errorf("dit: %w: latent: found %d frames, expected a multiple of %d", ErrSample, samples[0].Latent.Frames, z.FramePatch)
	}
	g := l.grids[0]
	for i, s := range samples {
		for axis, last := range [3]int{zImageFilled(s.Prompt.seen()) + g.frames, g.height - 1, g.width - 1} {
			if last >= z.Longest[axis] {
				return fmt.Errorf("dit: %w: sample %d: a token is at %d on axis %d of the rotary table, expected less than %d of axes_lens", ErrSample, i, last, axis, z.Longest[axis])
			}
		}
		if s.Prompt.seen() == 0 {
			return fmt.Errorf("dit: %w: sample %d: found a text without tokens that are seen, expected 1 or more", ErrSample, i)
		}
	}
	return nil
}

// setTokens sets the texts of a batch, the rows of all tokens and the bounds of their keys. A
// sample consists of its padded image tokens, its padded text tokens, and masked positions up
// to the length of the longest text.
func (z *ZImage) setTokens(b *data.Batch, l zImageLayout, samples []Sample) {
	text := make([]float32, l.samples*l.text*z.Text)
	textRows, imageRows := make([]int32, 0, l.samples*l.text), make([]int32, 0, l.samples*l.predicted())
	places := [2][]int32{make([]int32, 0, l.samples*l.filledImage), make([]int32, 0, l.samples*l.filledText)}
	var sees, seesImage, seesText intervals
	for i, s := range samples {
		real, first := 0, i*l.tokens()
		for t := range l.text {
			if !s.Prompt.sees(t) {
				textRows = append(textRows, -1)
				continue
			}
			copy(text[(i*l.text+t)*z.Text:], s.Prompt.Values[t*z.Text:(t+1)*z.Text])
			textRows = append(textRows, int32(i*l.filledText+real))
			real++
		}
		for t := range l.predicted() {
			imageRows = append(imageRows, int32(i*l.filledImage+t))
			ints(b, Predicted)[i*l.predicted()+t] = int32(first + t)
		}
		for t := range l.tokens() {
			of := min(t/l.filledImage, 1)
			places[of] = append(places[of], int32(first+t))
		}
		filled := zImageFilled(real)
		seesImage.add(l.filledImage, l.filledImage)
		seesText.add(l.filledText, filled)
		sees.add(l.tokens(), l.filledImage+filled)
	}
	b.SetFloats(Text, text)
	b.SetInts(TextRows, textRows)
	b.SetInts(ImageRows, imageRows)
	b.SetInts(imagePlaces, places[0])
	b.SetInts(textPlaces, places[1])
	sees.set(b, nn.KeyStart, nn.KeyEnd)
	seesImage.set(b, imageLo, imageHi)
	seesText.set(b, textLo, textHi)
	b.SetFloats(Rotary, z.rotary(l, samples))
}

// rotary returns the rotary table. Positions of a text count from 1 and include its learned
// tokens. The image follows on the first axis, and has rows and columns.
func (z *ZImage) rotary(l zImageLayout, samples []Sample) []float32 {
	r, g := rotary{z.Theta, z.Axes, angles64to32}, l.grids[0]
	return r.table(l.samples*l.tokens(), func(i int, at []int) {
		clear(at)
		filled := zImageFilled(samples[i/l.tokens()].Prompt.seen())
		switch i %= l.tokens(); {
		case i < g.tokens():
			at[0], at[1], at[2] = filled+1+i/(g.height*g.width), i/g.width%g.height, i%g.width
		case i >= l.filledImage && i-l.filledImage < filled:
			at[0] = 1 + i - l.filledImage
		}
	})
}

// Unpack implements [Transformer].
func (z *ZImage) Unpack(rows []float32, samples int, like Latent) ([][]float32, error) {
	return z.patches().unpackAll(rows, samples, like)
}

var _ Transformer = (*ZImage)(nil)
