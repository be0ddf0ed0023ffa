package cache

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestOutline: sizes and checksums match the entries, with and without a key, in both file formats.
func TestOutline(t *testing.T) {
	c, err := Open("testdata/python/f32", Options{Unkeyed: Accept})
	require.NoError(t, err)
	sums := map[string]bool{}
	for _, s := range pythonSamples {
		o, err := c.Outline(t.Context(), s, false)
		require.NoError(t, err)
		e, err := c.Sample(t.Context(), s, false)
		require.NoError(t, err)
		require.Equal(t, e.Latent.Shape, o.Latent)
		require.Equal(t, e.Control.Shape, o.Control)
		require.Equal(t, e.Text.Embeds.Shape, []int{o.Tokens, o.Features})
		require.Zero(t, o.Pooled)
		require.True(t, o.Unkeyed)
		require.Len(t, o.Sums, 3)
		text, err := e.Text.tensors()
		require.NoError(t, err)
		require.Equal(t, checksum(text), o.Sums[0])
		sums[o.Sums[1]] = true
	}
	require.Len(t, sums, len(pythonSamples))

	w := newWorld(t, 1)
	made := w.open(recipes())
	_, err = made.Build(t.Context(), w.samples, w.encoders(), BuildOptions{})
	require.NoError(t, err)
	keyed, err := made.Outline(t.Context(), w.samples[0], true)
	require.NoError(t, err)
	e, err := made.Sample(t.Context(), w.samples[0], true)
	require.NoError(t, err)
	text, err := e.Text.tensors()
	require.NoError(t, err)
	require.Equal(t, checksum(text), keyed.Sums[0])
	require.False(t, keyed.Unkeyed)

	_, err = c.Outline(t.Context(), Sample{Image: "a.png", Caption: "none.txt"}, false)
	require.ErrorIs(t, err, ErrMissing)
}
