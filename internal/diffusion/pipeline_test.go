package diffusion

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// folder makes a pipeline with an index and folders of parts.
func folder(t *testing.T, index string, parts ...string) string {
	dir := t.TempDir()
	if index != "" {
		require.NoError(t, os.WriteFile(filepath.Join(dir, IndexFile), []byte(index), 0o600))
	}
	for _, name := range parts {
		require.NoError(t, os.Mkdir(filepath.Join(dir, name), 0o700))
	}
	return dir
}

func TestPipeline(t *testing.T) {
	dir := folder(t, `{"_class_name": "FluxPipeline", "_diffusers_version": "0.42.1",
		"transformer": ["diffusers", "FluxTransformer2DModel"], "vae": ["diffusers", "AutoencoderKL"],
		"image_encoder": [null, null], "is_distilled": true, "boundary": 0.5,
		"nothing": null, "sample_sigmas": [1, 0.5]}`, "transformer")
	p, err := Open(dir)
	require.NoError(t, err)
	assert.Equal(t, "FluxPipeline", p.Class)
	assert.True(t, p.Distilled)
	assert.Equal(t, []float64{1, 0.5}, p.Sigmas)
	assert.Len(t, p.Parts, 2)
	assert.True(t, p.Has(Transformer))
	assert.False(t, p.Has(VAE))

	_, err = p.Folder(VAE)
	require.ErrorIs(t, err, ErrPart)
	assert.ErrorContains(t, err, "model_index.json lists vae as AutoencoderKL")
	require.NoError(t, os.Mkdir(filepath.Join(dir, Scheduler), 0o700))
	_, err = p.Schedule()
	require.ErrorIs(t, err, ErrPart)
	assert.ErrorContains(t, err, "does not list "+filepath.Join(dir, Scheduler)+", which is there")
	require.NoError(t, os.Remove(filepath.Join(dir, Scheduler)))

	_, err = p.Folder(TextEncoder)
	require.ErrorIs(t, err, ErrPart)
	assert.ErrorContains(t, err, "has no text_encoder")
	assert.ErrorContains(t, err, "it has transformer")

	s, err := p.Schedule()
	require.NoError(t, err)
	assert.InDelta(t, 1, s.Shift, 0)
}

func TestPipelineWithoutIndex(t *testing.T) {
	p, err := Open(folder(t, "", "transformer", "scheduler", "other"))
	require.NoError(t, err)
	assert.Len(t, p.Parts, 2)
	_, err = p.Schedule()
	assert.ErrorIs(t, err, os.ErrNotExist)
}

func TestWrongPipelines(t *testing.T) {
	for index, says := range map[string]string{
		"":                            "neither model_index.json nor a folder called transformer",
		`{`:                           "unexpected end of JSON input",
		`{"_class_name": 1}`:          "_class_name: found 1",
		`{"sample_sigmas": [0.5, 0]}`: "sample_sigmas: found 0, expected numbers above 0 and up to 1",
		`{"_class_name": "X", "vae": ["diffusers"], "transformer": ["diffusers", "Y"]}`:                       `vae: found ["diffusers"]`,
		`{"_class_name": "StableDiffusionPipeline", "unet": ["diffusers", "UNet"]}`:                           "StableDiffusionPipeline has no transformer; it has none",
		`{"_class_name": "FluxKontextPipeline", "transformer": ["diffusers", "Flux2Transformer2DModel"]}`:     "lists the transformer as Flux2Transformer2DModel, expected FluxTransformer2DModel",
		`{"_class_name": "QwenImage21Pipeline", "transformer": ["diffusers", "QwenImageTransformer2DModel"]}`: "expected QwenImage21Transformer2DModel",
	} {
		_, err := Open(folder(t, index))
		require.ErrorIs(t, err, ErrPipeline)
		assert.ErrorContains(t, err, says)
	}
	_, err := Open(filepath.Join(t.TempDir(), "nothing"))
	assert.ErrorIs(t, err, os.ErrNotExist)
}

func FuzzIndex(f *testing.F) {
	f.Add([]byte(`{"_class_name": "FluxPipeline", "transformer": ["diffusers", "FluxTransformer2DModel"]}`))
	f.Add([]byte(`{"sample_sigmas": [1]}`))
	dir := f.TempDir()
	require.NoError(f, os.Mkdir(filepath.Join(dir, Transformer), 0o700))
	f.Fuzz(func(t *testing.T, raw []byte) {
		require.NoError(t, os.WriteFile(filepath.Join(dir, IndexFile), raw, 0o600))
		p, err := Open(dir)
		if err == nil {
			assert.True(t, p.Has(Transformer))
			return
		}
		assert.NotContains(t, err.Error(), "\n")
	})
}
