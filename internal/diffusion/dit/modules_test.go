package dit_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/internal/diffusion/dit"
	"github.com/lorafuse/lorafuse/internal/model"
	"github.com/lorafuse/lorafuse/internal/nn"
	"github.com/lorafuse/lorafuse/lora"
)

// modulesOf are the modules of what a config.json describes.
func modulesOf(t *testing.T, config string) []nn.Module {
	c, err := model.ParseConfig([]byte(config))
	require.NoError(t, err)
	modules, err := dit.Modules(c)
	require.NoError(t, err)
	return modules
}

// The adapters of real models are as large as PEFT makes them.
func TestPlacements(t *testing.T) {
	qwen := `{"_class_name": "QwenImageTransformer2DModel", "attention_head_dim": 128, "axes_dims_rope": [16, 56, 56], "guidance_embeds": false,
		"in_channels": 64, "joint_attention_dim": 3584, "num_attention_heads": 24, "num_layers": 60, "out_channels": 16, "patch_size": 2}`
	flux := `{"_class_name": "FluxTransformer2DModel", "attention_head_dim": 128, "guidance_embeds": true, "in_channels": 64,
		"joint_attention_dim": 4096, "num_attention_heads": 24, "num_layers": 19, "num_single_layers": 38, "patch_size": 1, "pooled_projection_dim": 768}`
	for _, x := range []struct {
		config, targets     string
		parameters, tensors int
	}{
		{qwen, "to_k,to_q,to_v,to_out.0", 23592960, 480},
		{flux, "to_k,to_q,to_v,to_out.0", 18677760, 380},
	} {
		t.Run(fmt.Sprint(x.parameters), func(t *testing.T) {
			c, err := lora.ParseConfig([]byte(fmt.Sprintf(`{"peft_type": "LORA", "r": 16, "lora_alpha": 16, "target_modules": ["%s"]}`, strings.ReplaceAll(x.targets, ",", `","`))))
			require.NoError(t, err)
			p, err := lora.NewPlacement(c, lora.ModelOf("", modulesOf(t, x.config)))
			require.NoError(t, err)
			require.NoError(t, p.CheckUsed())
			parameters := 0
			for _, s := range p.Tensors() {
				parameters += s.Shape[0] * s.Shape[1]
			}
			require.Equal(t, x.parameters, parameters)
			require.Len(t, p.Tensors(), x.tensors)
		})
	}
}

// Adapters target the attention projections by default, under the names of each architecture.
func TestTargets(t *testing.T) {
	usual := []string{"to_k", "to_q", "to_v", "to_out.0"}
	want := map[string][]string{
		"flux": usual, "qwenimage": usual, "qwenimage21": usual, "zimage": usual,
		"flux2":      {"to_k", "to_q", "to_v", "to_out.0", "to_qkv_mlp_proj", "attn.to_out"},
		"kandinsky5": {"to_query", "to_key", "to_value"},
	}
	require.Len(t, dit.Families(), len(want))
	for name, targets := range want {
		m, _ := open(t, name)
		require.Equal(t, targets, dit.Targets(m), name)
	}
}
