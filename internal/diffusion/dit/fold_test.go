package dit_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"pgregory.net/rapid"

	"github.com/lorafuse/lorafuse/internal/diffusion/dit"
)

func TestFold(t *testing.T) {
	x := dit.Latent{Channels: 1, Frames: 1, Height: 2, Width: 4, Values: []float32{0, 1, 2, 3, 4, 5, 6, 7}}
	y := x.Fold(2)
	assert.Equal(t, dit.Latent{Channels: 4, Frames: 1, Height: 1, Width: 2, Values: []float32{0, 2, 1, 3, 4, 6, 5, 7}}, y)
	assert.Equal(t, x, y.Unfold(2))
}

func TestFoldIsUndone(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		size := func(name string) int { return rapid.IntRange(1, 4).Draw(t, name) }
		side := size("side")
		x := dit.Latent{Channels: size("channels"), Frames: size("frames"), Height: side * size("height"), Width: side * size("width")}
		for i := range x.Channels * x.Frames * x.Height * x.Width {
			x.Values = append(x.Values, float32(i))
		}
		assert.Equal(t, x, x.Fold(side).Unfold(side))
	})
}
