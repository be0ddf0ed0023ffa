package vae

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/dev/testdevice"
	"github.com/lorafuse/lorafuse/internal/diffusion/dit"
	"github.com/lorafuse/lorafuse/internal/model"
	"github.com/lorafuse/lorafuse/internal/nn"
)

func TestSizesThatAreRefused(t *testing.T) {
	kl, qwen := opened(t, "testdata/kl-bf16", Options{}), opened(t, "testdata/qwen-bf16", Options{})
	flux2 := opened(t, "testdata/flux2", Options{})
	for _, c := range []struct {
		v       *VAE
		picture Picture
		want    string
	}{
		{kl, Picture{3, 24, 38, nil}, "a picture of 38 by 24 pixels, AutoencoderKL takes multiples of 4"},
		{kl, Picture{3, 0, 4, nil}, "a picture of 4 by 0 pixels, AutoencoderKL takes multiples of 4"},
		{kl, Picture{4, 24, 40, nil}, "a picture of 4 channels, AutoencoderKL takes 3"},
		{kl, Picture{3, 8, 4, make([]float32, 95)}, "95 values of a picture of 4 by 8 pixels and 3 channels"},
		{kl, Picture{3, 1 << 20, 4, nil}, "a picture of 4 by 1048576 pixels, at most 65536 by 65536"},
		{flux2, Picture{3, 12, 8, nil}, "a picture of 8 by 12 pixels, AutoencoderKLFlux2 takes multiples of 8"},
		{qwen, Picture{4, 20, 29, nil}, "a picture of 29 by 20 pixels, AutoencoderKLQwenImage takes multiples of 4"},
	} {
		_, err := c.v.Encode(context.Background(), c.picture)
		require.ErrorIs(t, err, ErrSize)
		assert.EqualError(t, err, "vae: wrong size: "+c.want)
	}
	for _, c := range []struct {
		latent dit.Latent
		want   string
	}{
		{dit.Latent{Channels: 3, Frames: 3, Height: 2, Width: 2}, "a latent of 3 frames, AutoencoderKLQwenImage decodes one"},
		{dit.Latent{Channels: 4, Frames: 1, Height: 2, Width: 2}, "a latent of 4 channels, AutoencoderKLQwenImage has 3"},
		{dit.Latent{Channels: 3, Frames: 1, Height: 2}, "a latent of 0 by 2, expected 1 to 16384"},
		{dit.Latent{Channels: 3, Frames: 1, Height: 2, Width: 2}, "0 values of a latent of 2 by 2 and 3 channels"},
	} {
		_, err := qwen.Decode(context.Background(), c.latent)
		require.ErrorIs(t, err, ErrSize)
		assert.EqualError(t, err, "vae: wrong size: "+c.want)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_, err := kl.Encode(ctx, Picture{3, 4, 4, make([]float32, 48)})
	require.ErrorIs(t, err, context.Canceled)
}

func TestOptionsThatAreRefused(t *testing.T) {
	dev := testdevice.Open(t, backend.Options{})
	for _, o := range []Options{{Tile: -8}, {Tile: 30}, {Overlap: 8}, {Tile: 32, Overlap: 20}, {Tile: 32, Overlap: -4}, {Tile: 32, Overlap: 6}} {
		_, err := Open(dev, "testdata/kl-bf16", o)
		require.ErrorIs(t, err, ErrOption, "%+v", o)
	}
	_, err := Open(dev, "../../../testdata/bert", Options{})
	require.Error(t, err)
	_, err = Open(dev, "testdata/none", Options{})
	require.ErrorIs(t, err, os.ErrNotExist)
	_, err = readScale("testdata/none")
	require.ErrorIs(t, err, os.ErrNotExist)
}

// TestOthersAreNone opens a model of text.
func TestOthersAreNone(t *testing.T) {
	dirs, err := filepath.Glob("../../../testdata/extra/*/config.json")
	require.NoError(t, err)
	dir := filepath.Dir(dirs[0])
	_, err = Open(testdevice.Open(t, backend.Options{}), dir, Options{})
	require.ErrorIs(t, err, ErrModel)
	assert.Contains(t, err.Error(), "supported: AutoencoderKL, AutoencoderKLFlux2, AutoencoderKLQwenImage")
	_, err = readScale(dir)
	require.ErrorIs(t, err, ErrModel)
}

// TestConfigurationsThatAreRefused changes one thing each.
func TestConfigurationsThatAreRefused(t *testing.T) {
	for _, c := range []struct {
		dir, old, new string
		is            error
		want          string
	}{
		{"kl-bf16", `"act_fn": "silu"`, `"act_fn": "relu"`, model.ErrUnsupported, `act_fn "relu"; supported: silu, swish`},
		{"kl-bf16", `"DownEncoderBlock2D"`, `"AttnDownEncoderBlock2D"`, model.ErrUnsupported, `down_block_types "AttnDownEncoderBlock2D"; supported: DownEncoderBlock2D`},
		{"kl-bf16", `"norm_num_groups": 4`, `"norm_num_groups": 3`, model.ErrConfig, "block_out_channels: found 4, expected multiples of norm_num_groups, 3"},
		{"kl-bf16", `"norm_num_groups": 4`, `"norm_num_groups": 0`, model.ErrConfig, "norm_num_groups: found 0, expected 1 to"},
		{"kl-bf16", `"layers_per_block": 2`, `"layers_per_block": 2000000`, model.ErrConfig, "layers_per_block: found 2000000, expected 64 at most"},
		{"kl-bf16", `"layers_per_block"`, `"layer_per_block"`, model.ErrConfig, `layer_per_block: unknown key, did you mean "layers_per_block"?`},
		{"kl-bf16", `"latent_channels": 3`, `"latent_channels": "3"`, model.ErrConfig, `latent_channels: found "3", expected an integer`},
		{"kl-bf16", "    12\n", "    12,\n    16\n", model.ErrConfig, "down_block_types: found 3 blocks, expected one for each of block_out_channels, 4"},
		{"kl-bf16", `"latent_channels": 3`, `"latent_channels": 4`, nn.ErrShape, `tensor "encoder.conv_out.weight" is [6 12 3 3], expected [8 12 3 3]`},
		{"kl-bf16", `"mid_block_add_attention": true`, `"mid_block_add_attention": 1`, model.ErrConfig, "mid_block_add_attention: found 1, expected true or false"},
		{"kl-plain", `"mid_block_add_attention": false`, `"mid_block_add_attention": true`, nn.ErrMissing, `"encoder.mid_block.attentions.0.group_norm.weight"`},
		{"flux2", "\"patch_size\": [\n    2,", "\"patch_size\": [\n    3,", model.ErrConfig, "patch_size: found [3 2], expected two equal numbers of 1 to 16"},
		{"flux2", "    16\n", "    16,\n    16\n", model.ErrConfig, "decoder_block_out_channels: found 4 levels, expected as many as block_out_channels has, 3"},
		{"qwen-bf16", `"attn_scales": []`, `"attn_scales": [0.5]`, model.ErrConfig, "attn_scales: found [0.5], expected none"},
		{"qwen-bf16", "    true,\n", "", model.ErrConfig, "temperal_downsample: found 1 steps, expected one less than the levels of dim_mult, 2"},
		{"qwen-bf16", `"base_dim": 4`, `"base_dim": -4`, model.ErrConfig, "base_dim: found -4, expected 1 to"},
		{"qwen-bf16", `"base_dim": 4`, `"base_dim": 1000000000`, model.ErrConfig, "dim_mult: 3 times base_dim 1000000000 is too large"},
		{"qwen-bf16", `"base_dim"`, `"frames"`, model.ErrConfig, "frames: unknown key"},
	} {
		dir := changed(t, c.dir, c.old, c.new)
		_, err := Open(testdevice.Open(t, backend.Options{}), dir, Options{})
		require.ErrorIs(t, err, c.is, c.want)
		assert.Contains(t, err.Error(), c.want)
		assert.NotContains(t, err.Error(), "\n")
	}
}

// TestScalesThatAreRefused: what only the scale is made of.
func TestScalesThatAreRefused(t *testing.T) {
	for _, c := range []struct{ dir, old, new, want string }{
		{"kl-bf16", `"scaling_factor": 0.18215`, `"scaling_factor": 0`, "scaling_factor: found 0, expected another number"},
		{"kl-plain", "    2.0,\n", "", "latents_std: found 1 numbers, expected one for each of the 2 channels"},
		{"kl-plain", "    2.0,\n", "    0,\n", "latents_std: found 0 for channel 0, expected another number"},
		{"kl-plain", `"shift_factor": null`, `"shift_factor": 0.5`, "shift_factor 0.5 beside latents_mean"},
		{"qwen-bf16", "    0.1,\n", "", "latents_mean: found 2 numbers, expected one for each of the 3 channels"},
		{"flux2", "\"latent_channels\": 5", "\"latent_channels\": 4", `"bn.running_`},
	} {
		_, err := readScale(changed(t, c.dir, c.old, c.new))
		require.Error(t, err, c.want)
		assert.Contains(t, err.Error(), c.want)
	}
}

// changed is a copy of a folder of testdata with something else in config.json.
func changed(t *testing.T, name, old, new string) string {
	t.Helper()
	dir := t.TempDir()
	raw, err := os.ReadFile(filepath.Join("testdata", name, "config.json"))
	require.NoError(t, err)
	require.Contains(t, string(raw), old)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "config.json"), []byte(strings.Replace(string(raw), old, new, 1)), 0o600))
	const weights = "diffusion_pytorch_model.safetensors"
	raw, err = os.ReadFile(filepath.Join("testdata", name, weights))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, weights), raw, 0o600))
	return dir
}
