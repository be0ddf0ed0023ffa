package dit_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/graph"
	"github.com/lorafuse/lorafuse/internal/model"
	"github.com/lorafuse/lorafuse/internal/nn"
)

func TestWrongConfigs(t *testing.T) {
	for _, x := range []struct {
		class, keys, want string
		is                error
	}{
		{"Flux", `"out_channels": 16`, `in_channels "64"; supported: 16, the channels of a token that come out`, model.ErrUnsupported},
		{"Flux", `"in_channels": 384, "out_channels": 64`, `in_channels "384"; supported: 64, the channels of a token that come out`, model.ErrUnsupported},
		{"Flux", `"in_channels": 6`, "in_channels: found 6, expected a multiple of 4: the places of a token", model.ErrConfig},
		{"Flux", `"num_layers": -1`, "num_layers: found -1, expected 0 to 16384", model.ErrConfig},
		{"Flux", `"num_single_layers": 99999`, "num_single_layers: found 99999, expected 0 to 16384", model.ErrConfig},
		{"Flux", `"pooled_projection_dim": 0`, "pooled_projection_dim: found 0, expected 1 to", model.ErrConfig},
		{"Flux", `"axes_dims_rope": [16, 56]`, "axes_dims_rope: found [16 56], expected 3 that add up to attention_head_dim 128", model.ErrConfig},
		{"Flux", `"axes_dims_rope": [15, 57, 56]`, "axes_dims_rope: found [15 57 56], expected even numbers of 0 to 128", model.ErrConfig},
		{"Flux", `"guidance_embeds": "yes"`, `guidance_embeds: found "yes", expected true or false`, model.ErrConfig},
		{"QwenImage", `"guidance_embeds": true`, `guidance_embeds "true"; supported: false`, model.ErrUnsupported},
		{"QwenImage", `"out_channels": 32`, `in_channels "64"; supported: 128, the channels of a token that come out`, model.ErrUnsupported},
		{"QwenImage", `"num_attention_heads": 0`, "num_attention_heads: found 0, expected 1 to", model.ErrConfig},
		{"QwenImage", `"num_attention_heads": 1000000000`, "num_attention_heads times attention_head_dim: found", model.ErrConfig},
	} {
		_, err := model.ParseConfig([]byte(fmt.Sprintf(`{"_class_name": "%sTransformer2DModel", %s}`, x.class, x.keys)))
		require.ErrorIs(t, err, x.is, x.keys)
		require.ErrorContains(t, err, x.want)
	}
}

// As many channels come out as go in where out_channels is null; a missing one is 16.
func TestChannelsThatComeOut(t *testing.T) {
	for keys, ok := range map[string]bool{
		`"in_channels": 12, "patch_size": 1, "out_channels": null`: true, `"in_channels": 64, "out_channels": null`: false,
		`"in_channels": 16, "patch_size": 1`: true, `"in_channels": 12, "patch_size": 1`: false,
	} {
		_, err := model.ParseConfig([]byte(fmt.Sprintf(`{"_class_name": "QwenImageTransformer2DModel", %s}`, keys)))
		require.Equal(t, ok, err == nil, keys)
	}
}

// without is a checkpoint that lacks one tensor.
type without struct {
	nn.Weights
	name string
}

func (w without) Weight(name string) (nn.Weight, error) {
	if name == w.name {
		return nn.Weight{}, fmt.Errorf("%w: %q", nn.ErrMissing, name)
	}
	return w.Weights.Weight(name)
}

// A tensor that is missing is named, whichever it is.
func TestMissingTensors(t *testing.T) {
	for _, name := range append(goldens, "qwenimage-layered") {
		m, _ := open(t, name)
		for _, missing := range m.Used() {
			b := nn.NewBuilder(graph.New(), without{m, missing}, nn.Options{OtherBounds: 2})
			m.Build(b)
			require.ErrorIs(t, b.G.Err(), nn.ErrMissing)
			require.ErrorContains(t, b.G.Err(), missing)
		}
	}
}

// All tensors of a checkpoint are read.
func TestAllTensorsAreRead(t *testing.T) {
	for _, name := range append(goldens, "qwenimage-layered") {
		m, _ := open(t, name)
		require.ElementsMatch(t, m.Set().Names(), m.Used(), name)
	}
}

// FLUX.1 schnell is told no guidance.
func TestSchnell(t *testing.T) {
	raw, err := os.ReadFile(filepath.Join(testdata, "flux", "transformer", "config.json"))
	require.NoError(t, err)
	for _, m := range modulesOf(t, strings.Replace(string(raw), `"guidance_embeds": true`, `"guidance_embeds": false`, 1)) {
		require.NotContains(t, m.Name, "guidance")
	}
}
