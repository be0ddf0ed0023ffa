package cache

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/tensor"
)

// TestPooled: the pooled embedding of a caption is stored with its tokens and read with the sample; a tensor of two
// axes is invalid.
func TestPooled(t *testing.T) {
	w := newWorld(t, 1)
	s := w.samples[0]
	c := w.open(recipes())
	made := embed("a caption")
	made.Pooled = made.Embeds
	build := func(string) (Embedding, error) { return made, nil }
	_, err := c.Text(t.Context(), s.Caption, build)
	require.ErrorIs(t, err, ErrTensor)
	require.ErrorContains(t, err, "pooled_prompt_embeds: found shape")

	pooled, err := tensor.New(tensor.F32, 3)
	require.NoError(t, err)
	made.Pooled = pooled
	_, err = c.Text(t.Context(), s.Caption, build)
	require.NoError(t, err)
	image := func([]byte) (tensor.Tensor, error) { return tensor.New(tensor.F32, 4, 2, 2) }
	for _, of := range []func() error{
		func() error { _, err := c.Image(t.Context(), s.Image, image); return err },
		func() error { _, err := c.Control(t.Context(), s.Control, image); return err },
	} {
		require.NoError(t, of())
	}
	got, err := w.open(recipes()).Sample(t.Context(), s, false)
	require.NoError(t, err)
	require.Equal(t, made, got.Text)
	require.Equal(t, s.Image, got.Name)
	require.Equal(t, got.Latent, got.Control)
	_, err = c.Sample(t.Context(), s, true)
	require.ErrorIs(t, err, ErrMissing, "there is no empty prompt")
}
