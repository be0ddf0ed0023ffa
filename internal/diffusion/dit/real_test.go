package dit_test

import (
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/graph"
	"github.com/lorafuse/lorafuse/internal/diffusion/dit"
	"github.com/lorafuse/lorafuse/internal/model"
	"github.com/lorafuse/lorafuse/internal/nn"
	"github.com/lorafuse/lorafuse/lora"
)

// real is what diffusers makes of the defaults of a class: the tensors of a checkpoint,
// with %d in the place of the numbers of blocks, and how many of each kind there are.
type real struct {
	Config     json.RawMessage
	Parameters int
	Tensors    map[string]struct {
		Shape []int
		Count int
	}
}

// shapes is a checkpoint that writes down which tensors it is asked for.
type shapes struct {
	dit.Nothing
	asked map[string][]int
}

func (s shapes) Blank(name string, shape []int) nn.Weight {
	s.asked[name] = append([]int(nil), shape...)
	return s.Nothing.Blank(name, shape)
}

var blockNumber = regexp.MustCompile(`((?:layers|refiner|blocks)\.)\d+\.`)

// The real models have the tensors that they have in diffusers, and their adapters the
// sizes that PEFT gives them.
func TestRealModels(t *testing.T) {
	raw, err := os.ReadFile("testdata/real.json")
	require.NoError(t, err)
	models := map[string]real{}
	require.NoError(t, json.Unmarshal(raw, &models))
	single := make([]string, 48)
	for i := range single {
		single[i] = fmt.Sprintf("single_transformer_blocks.%d.attn.to_out", i)
	}
	for class, adapter := range map[string]struct {
		targets             []string
		parameters, tensors int
	}{
		"ZImageTransformer2DModel":      {[]string{"to_k", "to_q", "to_v", "to_out.0"}, 16711680, 272},
		"QwenImage21Transformer2DModel": {[]string{"to_k", "to_q", "to_v", "to_out.0"}, 16777216, 256},
		"Flux2Transformer2DModel":       {append([]string{"to_k", "to_q", "to_v", "to_out.0", "to_qkv_mlp_proj"}, single...), 77070336, 256},
		"Kandinsky5Transformer3DModel":  {[]string{"to_query", "to_key", "to_value"}, 12976128, 396},
	} {
		t.Run(class, func(t *testing.T) {
			want, w := models[class], shapes{asked: map[string][]int{}}
			c, err := model.ParseConfig(want.Config)
			require.NoError(t, err)
			defaults, err := model.ParseConfig([]byte(fmt.Sprintf(`{"_class_name": %q}`, class)))
			require.NoError(t, err)
			require.Equal(t, c.Family, defaults.Family)
			b := nn.NewBuilder(graph.New(), w, nn.Options{OtherBounds: 2})
			c.Family.Build(c, b)
			require.NoError(t, b.G.Err())

			count, parameters := map[string]int{}, 0
			for name, shape := range w.asked {
				kind := blockNumber.ReplaceAllString(name, "${1}%d.")
				require.Equal(t, want.Tensors[kind].Shape, shape, name)
				count[kind]++
				n := 1
				for _, d := range shape {
					n *= d
				}
				parameters += n
			}
			for kind, x := range want.Tensors {
				require.Equal(t, x.Count, count[kind], kind)
			}
			require.Equal(t, want.Parameters, parameters)

			lc := lora.DefaultConfig()
			lc.R, lc.LoraAlpha, lc.TargetModules = 16, 16, lora.ModuleSet{Names: adapter.targets}
			p, err := lora.NewPlacement(lc, lora.ModelOf("", b.Modules()))
			require.NoError(t, err)
			require.NoError(t, p.CheckUsed())
			parameters = 0
			for _, x := range p.Tensors() {
				parameters += x.Shape[0] * x.Shape[1]
			}
			require.Equal(t, adapter.parameters, parameters)
			require.Len(t, p.Tensors(), adapter.tensors)
		})
	}
}

// Configurations that cannot be honoured are refused by key.
func TestMoreWrongConfigs(t *testing.T) {
	for _, x := range []struct {
		class, keys, want string
		is                error
	}{
		{"ZImageTransformer2D", `"siglip_feat_dim": 1152`, `siglip_feat_dim "1152"; supported: null`, model.ErrUnsupported},
		{"ZImageTransformer2D", `"axes_dims": [32, 48, 50]`, "axes_dims: found [32 48 50], expected 3 that add up to dim/n_heads 128", model.ErrConfig},
		{"ZImageTransformer2D", `"axes_lens": [32]`, "axes_lens: found 1, expected one for each of the 3 of axes_dims", model.ErrConfig},
		{"ZImageTransformer2D", `"all_patch_size": []`, "all_f_patch_size: found 1 sizes, expected one for each of the 0 of all_patch_size", model.ErrConfig},
		{"ZImageTransformer2D", `"all_patch_size": [0]`, "all_patch_size: found 0, expected 1 to", model.ErrConfig},
		{"ZImageTransformer2D", `"n_heads": 7`, "dim 3840 is not a multiple of n_heads 7", model.ErrConfig},
		{"ZImageTransformer2D", `"n_layers": -2`, "n_layers: found -2, expected 0 to 16384", model.ErrConfig},
		{"ZImageTransformer2D", `"qk_norm": 3`, "qk_norm: found 3, expected true or false", model.ErrConfig},
		{"Flux2Transformer2D", `"patch_size": 2`, `in_channels "128"; supported: 512, the channels of a token that come out`, model.ErrUnsupported},
		{"Flux2Transformer2D", `"axes_dims_rope": [64, 64]`, "axes_dims_rope: found [64 64], expected 4 that add up to attention_head_dim 128", model.ErrConfig},
		{"Flux2Transformer2D", `"mlp_ratio": 0`, "mlp_ratio: found 0, expected more than 0", model.ErrConfig},
		{"Flux2Transformer2D", `"timestep_guidance_channels": 7`, "timestep_guidance_channels: found 7, expected an even number", model.ErrConfig},
		{"QwenImage21Transformer2D", `"patch_size": 2`, `patch_size "2"; supported: 1`, model.ErrUnsupported},
		{"QwenImage21Transformer2D", `"out_channels": 3`, `out_channels "3"; supported: 64, the channels of a latent`, model.ErrUnsupported},
		{"QwenImage21Transformer2D", `"num_attention_heads": 1000000000`, "num_attention_heads times attention_head_dim: found", model.ErrConfig},
		{"Kandinsky5Transformer3D", `"attention_type": "nabla"`, `attention_type "nabla"; supported: regular`, model.ErrUnsupported},
		{"Kandinsky5Transformer3D", `"out_visual_dim": 8`, `out_visual_dim "8"; supported: 4, the channels of a latent`, model.ErrUnsupported},
		{"Kandinsky5Transformer3D", `"patch_size": [1, 2]`, "patch_size: found [1 2], expected 3 numbers of 1 to", model.ErrConfig},
		{"Kandinsky5Transformer3D", `"axes_dims": [0, 0, 0]`, "model_dim: found 2048, expected an even multiple of the sum of axes_dims, 0", model.ErrConfig},
		{"Kandinsky5Transformer3D", `"model_dim": 2049`, "model_dim: found 2049, expected an even multiple of the sum of axes_dims, 64", model.ErrConfig},
	} {
		_, err := model.ParseConfig([]byte(fmt.Sprintf(`{"_class_name": "%sModel", %s}`, x.class, x.keys)))
		require.ErrorIs(t, err, x.is, x.keys)
		require.ErrorContains(t, err, x.want)
	}
}

// A tensor that is missing is named, and all others are read.
func TestMoreMissingTensors(t *testing.T) {
	for name := range moreGoldens {
		m, _ := open(t, name)
		require.ElementsMatch(t, m.Set().Names(), m.Used(), name)
		for _, missing := range m.Used() {
			b := nn.NewBuilder(graph.New(), without{m, missing}, nn.Options{OtherBounds: 2})
			m.Build(b)
			require.ErrorIs(t, b.G.Err(), nn.ErrMissing)
			require.ErrorContains(t, b.G.Err(), missing)
		}
	}
}
