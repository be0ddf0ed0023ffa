package diffusion

import (
	"context"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/dev/testdevice"
	"github.com/lorafuse/lorafuse/internal/diffusion/dit"
	"github.com/lorafuse/lorafuse/internal/diffusion/vae"
)

// A pipeline without an autoencoder draws pixels, or squares of them.
func TestPixels(t *testing.T) {
	p := &Pipeline{Dir: "x", Parts: map[string]Part{Transformer: {There: true}}}
	for channels, side := range map[int]int{3: 1, 12: 2, 48: 4} {
		c, err := p.Canvas(dit.Space{Channels: channels, Multiple: 2})
		require.NoError(t, err)
		assert.Equal(t, side, c.Pixels)
		w, h, err := c.Latent(4*side, 2*side)
		require.NoError(t, err)
		assert.Equal(t, [2]int{4, 2}, [2]int{w, h})

		x := dit.Latent{Channels: channels, Frames: 1, Height: h, Width: w}
		for i := range channels * h * w {
			x.Values = append(x.Values, float32(i))
		}
		picture, err := c.Paint(context.Background(), x)
		require.NoError(t, err)
		assert.Equal(t, x.Unfold(side).Values, picture.Values)
		assert.Equal(t, 3, picture.Channels)
	}
	_, err := p.Canvas(dit.Space{Channels: 16, Multiple: 2})
	require.ErrorIs(t, err, ErrPart)
	assert.ErrorContains(t, err, "x has no vae")
}

func TestCanvasSizes(t *testing.T) {
	c := &Canvas{Pixels: 8, Multiple: 16}
	for _, size := range [][2]int{{0, 16}, {16, 15}, {-16, 16}} {
		_, _, err := c.Latent(size[0], size[1])
		assert.ErrorIs(t, err, ErrDrawing)
	}
}

// What an autoencoder makes that is no number is not drawn as black.
func TestPaintNumbersAlone(t *testing.T) {
	p := &Pipeline{Dir: "x", Parts: map[string]Part{VAE: {Dir: "../../testdata/dit/vae-flux/vae", There: true}}}
	c, err := p.Canvas(dit.Space{Channels: 4, Multiple: 2})
	require.NoError(t, err)
	require.NoError(t, c.Open(testdevice.Open(t, backend.Options{}), vae.Options{}))
	defer func() { require.NoError(t, c.Close()) }()
	x := dit.Latent{Channels: 4, Frames: 1, Height: 2, Width: 2, Values: slices.Repeat([]float32{3e38}, 16)}
	_, err = c.Paint(t.Context(), x)
	require.ErrorIs(t, err, ErrDrawing)
	require.ErrorContains(t, err, "vae makes NaN of the latent at place 0")
}
