package cache

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/tensor"
)

// TestForeignForms: entries of other programs, with the axis of a batch and without a mask.
func TestForeignForms(t *testing.T) {
	for name, x := range map[string]struct {
		embeds, latent, want []int
	}{
		"batch":          {[]int{1, 3, 2}, []int{1, 4, 1, 2, 2}, []int{4, 1, 2, 2}},
		"batch of flats": {[]int{3, 2}, []int{1, 8, 2, 1}, []int{8, 2, 1}},
		"frames":         {[]int{3, 2}, []int{4, 2, 2, 1}, []int{4, 2, 2, 1}},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			for _, folder := range []string{textDir, imageDir} {
				require.NoError(t, os.Mkdir(filepath.Join(dir, folder), 0o777))
			}
			embeds, err := tensor.FromFloat32s([]float32{1, 2, 3, 4, 5, 6}, x.embeds...)
			require.NoError(t, err)
			latent, err := tensor.FromFloat32s(make([]float32, 16), x.latent...)
			require.NoError(t, err)
			require.NoError(t, SaveEmbeddings(filepath.Join(dir, textDir, "a.txt.safetensors"), map[string]tensor.Tensor{embedsName: embeds}))
			require.NoError(t, SaveEmbeddings(filepath.Join(dir, imageDir, "a.png.safetensors"), map[string]tensor.Tensor{latentName: latent}))
			c, err := Open(dir, Options{Unkeyed: Accept})
			require.NoError(t, err)
			e, err := c.Text(context.Background(), "a.txt", nil)
			require.NoError(t, err)
			assert.Equal(t, []int{3, 2}, e.Embeds.Shape)
			assert.Equal(t, embeds.Data, e.Embeds.Data)
			assert.Equal(t, []int64{1, 1, 1}, e.Mask)
			o, err := c.Outline(context.Background(), Sample{Image: "a.png", Caption: "a.txt"}, false)
			require.NoError(t, err)
			assert.Equal(t, x.want, o.Latent)
			assert.Equal(t, 3, o.Tokens)
		})
	}
}
