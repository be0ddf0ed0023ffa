package cli

import (
	"image"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/safetensors"
)

// TestTransformerInAFile: what is drawn, and the adapter that is converted, are those of the
// folder.
func TestTransformerInAFile(t *testing.T) {
	l := newLab(t)
	dir, embedding := l.flux()
	picture := func(name string, args ...string) image.Image {
		args = append([]string{"draw", "--embedding", embedding, "--size", "32x16", "--steps", "1", "-o", l.path(name)}, args...)
		succeed(t, args...)
		return l.picture(l.path(name))
	}
	convert := func(model ...string) []byte {
		out := l.path("adapter.safetensors")
		succeed(t, append([]string{"adapter", "convert", fluxAdapter, out, "--to", "kohya", "--force", "--model"}, model...)...)
		raw, err := os.ReadFile(out)
		require.NoError(t, err)
		return raw
	}
	want, adapter := picture("folder.png", "--model", dir), convert(dir)

	file, config := l.path("flux.safetensors"), l.path("flux.json")
	require.NoError(t, os.Rename(filepath.Join(dir, "transformer/diffusion_pytorch_model.safetensors"), file))
	require.NoError(t, os.Rename(filepath.Join(dir, "transformer/config.json"), config))
	require.NoError(t, os.RemoveAll(filepath.Join(dir, "transformer")))
	l.tensors(file, func(e *safetensors.Entry) bool {
		e.Name = "diffusion_model." + e.Name
		return true
	})
	assert.Equal(t, want, picture("file.png", "--model", dir, "--transformer", file, "--transformer-config", config))
	assert.Equal(t, adapter, convert(file, "--transformer-config", config))

	for _, x := range []struct {
		says string
		args []string
	}{
		{"cannot be told for heads of 16", []string{"draw", "--model", dir, "--transformer", file}},
		{"has no vae", []string{"draw", "--transformer", file, "--transformer-config", config}},
		{"has no vae", []string{"draw", "--model", file, "--transformer-config", config}},
		{"goes with a transformer in a single file", []string{"draw", "--model", dir, "--transformer-config", config}},
		{"is one of an adapter", []string{"draw", "--model", dir, "--transformer", fluxAdapter}},
		{"is one of an autoencoder", []string{"draw", "--model", dir, "--transformer", dits + "/vae-flux/vae/diffusion_pytorch_model.safetensors"}},
		{"file does not exist", []string{"draw", "--model", dir, "--transformer", l.path("none.safetensors")}},
		{"is a folder", []string{"draw", "--model", dir, "--transformer", dir}},
		{"expected a FluxTransformer2DModel for", []string{"draw", "--model", dir, "--transformer", dits + "/zimage/transformer/diffusion_pytorch_model.safetensors"}},
	} {
		r := command(t, "", append(x.args, "--embedding", embedding, "-o", l.path("x.png"))...)
		assert.NotEqual(t, ExitOK, r.status)
		assert.Contains(t, r.stderr, x.says)
	}
}
