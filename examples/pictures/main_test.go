package main

import (
	"image"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/lorafuse/lorafuse/internal/diffusion/dit"
)

// What the program itself draws is judged right, in both styles and wherever it lies.
func TestJudge(t *testing.T) {
	known := templates()
	for _, in := range []struct {
		style   style
		glowing int
	}{{plain, 0}, {glow, len(colours) * len(shapes)}} {
		var drawn []image.Image
		var asked []picture
		for i := range len(colours) * len(shapes) {
			p := picture{colour: i % len(colours), shape: i / len(colours)}.place(i)
			drawn, asked = append(drawn, p.paint(in.style)), append(asked, p)
		}
		n := len(drawn)
		assert.Equal(t, score{drawn: n, glowing: in.glowing, colour: n, shape: n}, judge(drawn, asked, known))
	}
}

func TestEncode(t *testing.T) {
	p := encode("red star")
	assert.Len(t, p.Values, 3*features)
	assert.Equal(t, word("star"), p.Values[2*features:])
	assert.Equal(t, p, encode("red star"))
	assert.NotEqual(t, p.Pooled, encode("blue star").Pooled)
}

func TestPixels(t *testing.T) {
	m := picture{shape: 1, x: side / 2, y: side / 2, size: 10}.paint(func(float64, [3]float64) [3]float64 { return [3]float64{1, 0, 0.5} })
	x := pixels(m)
	assert.Equal(t, dit.Latent{Channels: 3, Frames: 1, Height: side, Width: side, Values: x.Values}, x)
	assert.InDelta(t, 1, x.Values[0], 1e-6)
	assert.InDelta(t, -1, x.Values[side*side], 1e-6)
	assert.InDelta(t, 0, x.Values[2*side*side], 0.01)
}
