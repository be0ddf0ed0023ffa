package diffusion

import (
	"image"
	"image/color"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/lorafuse/lorafuse/internal/diffusion/vae"
)

func TestImage(t *testing.T) {
	p := vae.Picture{Channels: 3, Height: 1, Width: 2, Values: []float32{-1, 1, 0, 2, -3, 0.5}}
	m := Image(p)
	assert.Equal(t, color.NRGBA{0, 128, 0, 255}, m.NRGBAAt(0, 0))
	assert.Equal(t, color.NRGBA{255, 255, 191, 255}, m.NRGBAAt(1, 0))

	grey := Image(vae.Picture{Channels: 1, Height: 1, Width: 1, Values: []float32{1}})
	assert.Equal(t, color.NRGBA{255, 255, 255, 255}, grey.NRGBAAt(0, 0))
	clear := Image(vae.Picture{Channels: 4, Height: 1, Width: 1, Values: []float32{1, 1, 1, -1}})
	assert.Equal(t, uint8(0), clear.NRGBAAt(0, 0).A)
}

func TestGrid(t *testing.T) {
	plain := func(w, h int, c color.Color) image.Image {
		m := image.NewNRGBA(image.Rect(0, 0, w, h))
		for i := range w * h {
			m.Set(i%w, i/w, c)
		}
		return m
	}
	red, blue := color.NRGBA{255, 0, 0, 255}, color.NRGBA{0, 0, 255, 255}
	g := Grid([][]image.Image{{plain(2, 3, red), plain(5, 1, blue)}, {plain(4, 2, blue)}})
	assert.Equal(t, image.Rect(0, 0, 4+gap+5, 3+gap+2), g.Rect)
	white := color.NRGBA{255, 255, 255, 255}
	for at, want := range map[image.Point]color.NRGBA{
		{1, 2}: red, {2, 2}: white, {4, 0}: white, {8, 0}: blue, {8, 1}: white, {3, 3 + gap}: blue, {8, 8}: white,
	} {
		assert.Equal(t, want, g.NRGBAAt(at.X, at.Y), at)
	}
	assert.Equal(t, image.Rect(0, 0, 0, 0), Grid(nil).Rect)
}
